module github.com/reprise-go/reprise/torture

go 1.26.0

replace github.com/reprise-go/reprise => ..
