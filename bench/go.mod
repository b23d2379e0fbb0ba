module github.com/reprise-go/reprise/bench

go 1.26.0

replace github.com/reprise-go/reprise => ..
