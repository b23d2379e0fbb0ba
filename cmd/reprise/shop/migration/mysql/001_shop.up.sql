-- The shop's own tables. They stand in the same database as the library's, which
-- is what lets an order, its event and the answer to its key be committed
-- together. Times are Unix milliseconds.
--
-- Texts are VARBINARY, four bytes for each of their 255 characters: "A" is not "a"
-- and not "A " either, which it is under every collation that MySQL and MariaDB
-- have in common. Neither can roll back a CREATE TABLE, so every statement may be
-- run again after a migration that was cut off.

CREATE TABLE IF NOT EXISTS shop_migration (
	version    BIGINT       PRIMARY KEY,
	name       VARCHAR(255) NOT NULL,
	applied_at BIGINT       NOT NULL
) ENGINE = InnoDB DEFAULT CHARACTER SET utf8mb4;

CREATE TABLE IF NOT EXISTS orders (
	seq        BIGINT          NOT NULL AUTO_INCREMENT PRIMARY KEY,
	id         VARBINARY(64)   NOT NULL,
	caller     VARBINARY(255)  NOT NULL,
	ref        VARBINARY(1020) NOT NULL,
	sku        VARBINARY(1020) NOT NULL,
	quantity   BIGINT          NOT NULL,
	amount     BIGINT          NOT NULL,
	currency   VARBINARY(3)    NOT NULL,
	status     VARBINARY(16)   NOT NULL,
	version    BIGINT          NOT NULL,
	created_at BIGINT          NOT NULL,
	UNIQUE KEY orders_id (id),
	KEY orders_caller (caller, seq),
	KEY orders_ref (caller, ref, seq)
) ENGINE = InnoDB ROW_FORMAT = DYNAMIC;

-- One payment per order: the database itself refuses a second one, unless the
-- first was declined. An index that leaves rows out is a unique one over a column
-- that is NULL in them.
CREATE TABLE IF NOT EXISTS payments (
	seq           BIGINT          NOT NULL AUTO_INCREMENT PRIMARY KEY,
	id            VARBINARY(64)   NOT NULL,
	order_id      VARBINARY(64)   NOT NULL,
	caller        VARBINARY(255)  NOT NULL,
	ref           VARBINARY(1020) NOT NULL,
	amount        BIGINT          NOT NULL,
	currency      VARBINARY(3)    NOT NULL,
	status        VARBINARY(16)   NOT NULL,
	psp_reference VARBINARY(1020) NOT NULL DEFAULT '',
	standing      VARBINARY(64)   AS (CASE WHEN status <> 'declined' THEN order_id END) STORED,
	UNIQUE KEY payments_id (id),
	UNIQUE KEY payments_one (standing),
	KEY payments_caller (caller, seq),
	KEY payments_ref (caller, ref, seq),
	CONSTRAINT payments_order FOREIGN KEY (order_id) REFERENCES orders (id)
) ENGINE = InnoDB ROW_FORMAT = DYNAMIC;

CREATE TABLE IF NOT EXISTS coupons (
	seq    BIGINT          NOT NULL AUTO_INCREMENT PRIMARY KEY,
	caller VARBINARY(255)  NOT NULL,
	code   VARBINARY(1020) NOT NULL,
	stock  BIGINT          NOT NULL,
	used   BIGINT          NOT NULL DEFAULT 0,
	UNIQUE KEY coupons_code (caller, code),
	CONSTRAINT coupons_stock CHECK (used <= stock)
) ENGINE = InnoDB ROW_FORMAT = DYNAMIC;

CREATE TABLE IF NOT EXISTS redemptions (
	seq    BIGINT          NOT NULL AUTO_INCREMENT PRIMARY KEY,
	id     VARBINARY(64)   NOT NULL,
	coupon BIGINT          NOT NULL,
	caller VARBINARY(255)  NOT NULL,
	ref    VARBINARY(1020) NOT NULL,
	UNIQUE KEY redemptions_id (id),
	KEY redemptions_ref (caller, ref),
	CONSTRAINT redemptions_coupon FOREIGN KEY (coupon) REFERENCES coupons (seq)
) ENGINE = InnoDB ROW_FORMAT = DYNAMIC;

-- What the fulfilment consumer has done, one row for each event.
CREATE TABLE IF NOT EXISTS deliveries (
	seq    BIGINT          NOT NULL AUTO_INCREMENT PRIMARY KEY,
	caller VARBINARY(255)  NOT NULL,
	ref    VARBINARY(1020) NOT NULL,
	type   VARBINARY(255)  NOT NULL,
	KEY deliveries_ref (caller, ref, type)
) ENGINE = InnoDB ROW_FORMAT = DYNAMIC;

INSERT IGNORE INTO shop_migration VALUES (1, 'shop', CAST(UNIX_TIMESTAMP(NOW(3)) * 1000 AS SIGNED));
