-- The shop's own tables. They stand in the same database as the library's, which
-- is what lets an order, its event and the answer to its key be committed
-- together. Times are Unix milliseconds.

CREATE TABLE shop_migration (
	version    BIGINT PRIMARY KEY,
	name       TEXT   NOT NULL,
	applied_at BIGINT NOT NULL
);

CREATE TABLE orders (
	seq        BIGINT GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
	id         TEXT   NOT NULL UNIQUE,
	caller     TEXT   NOT NULL,
	ref        TEXT   NOT NULL,
	sku        TEXT   NOT NULL,
	quantity   BIGINT NOT NULL,
	amount     BIGINT NOT NULL,
	currency   TEXT   NOT NULL,
	status     TEXT   NOT NULL,
	version    BIGINT NOT NULL,
	created_at BIGINT NOT NULL
);
CREATE INDEX orders_caller ON orders (caller, seq);
CREATE INDEX orders_ref ON orders (caller, ref, seq);

CREATE TABLE payments (
	seq           BIGINT GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
	id            TEXT   NOT NULL UNIQUE,
	order_id      TEXT   NOT NULL REFERENCES orders (id),
	caller        TEXT   NOT NULL,
	ref           TEXT   NOT NULL,
	amount        BIGINT NOT NULL,
	currency      TEXT   NOT NULL,
	status        TEXT   NOT NULL,
	psp_reference TEXT   NOT NULL DEFAULT ''
);
CREATE INDEX payments_caller ON payments (caller, seq);
CREATE INDEX payments_ref ON payments (caller, ref, seq);
-- One payment per order: the database itself refuses a second one, unless the
-- first was declined.
CREATE UNIQUE INDEX payments_one ON payments (order_id) WHERE status <> 'declined';

CREATE TABLE coupons (
	seq    BIGINT GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
	caller TEXT   NOT NULL,
	code   TEXT   NOT NULL,
	stock  BIGINT NOT NULL,
	used   BIGINT NOT NULL DEFAULT 0 CHECK (used <= stock),
	UNIQUE (caller, code)
);

CREATE TABLE redemptions (
	seq    BIGINT GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
	id     TEXT   NOT NULL UNIQUE,
	coupon BIGINT NOT NULL REFERENCES coupons (seq),
	caller TEXT   NOT NULL,
	ref    TEXT   NOT NULL
);
CREATE INDEX redemptions_ref ON redemptions (caller, ref);

-- What the fulfilment consumer has done, one row for each event.
CREATE TABLE deliveries (
	seq    BIGINT GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
	caller TEXT   NOT NULL,
	ref    TEXT   NOT NULL,
	type   TEXT   NOT NULL
);
CREATE INDEX deliveries_ref ON deliveries (caller, ref, type);

INSERT INTO shop_migration VALUES (1, 'shop', extract(epoch FROM clock_timestamp()) * 1000);
