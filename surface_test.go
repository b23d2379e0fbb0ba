// SPDX-License-Identifier: Apache-2.0

package reprise_test

import (
	"bytes"
	"flag"
	"fmt"
	"go/ast"
	"go/parser"
	"go/printer"
	"go/token"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

var update = flag.Bool("update", false, "rewrite api/*.txt")

// TestExportedSurface compares what each public package exports with api/NAME.txt,
// so that a new or changed name is a visible line in a review. Run
// "go test -run ExportedSurface . -update" after a change that is meant.
func TestExportedSurface(t *testing.T) {
	t.Parallel()
	want := map[string]bool{}
	for _, p := range goList(t) {
		dir := strings.TrimPrefix(strings.TrimPrefix(p.ImportPath, modulePath), "/")
		if strings.Contains("/"+dir+"/", "/internal/") {
			continue
		}
		name := strings.ReplaceAll(dir, "/", "_")
		if name == "" {
			name = "reprise"
		}
		file := filepath.Join("api", name+".txt")
		want[file] = true
		got := surface(t, filepath.Join(".", filepath.FromSlash(dir)))
		if *update {
			if err := os.WriteFile(file, got, 0o644); err != nil {
				t.Fatal(err)
			}
			continue
		}
		golden, err := os.ReadFile(file)
		if err != nil {
			t.Errorf("%s: %v; run go test -run ExportedSurface . -update", p.ImportPath, err)
			continue
		}
		reportLines(t, p.ImportPath, string(golden), string(got))
	}
	files, _ := filepath.Glob("api/*.txt")
	for _, f := range files {
		if want[f] {
			continue
		}
		if *update {
			_ = os.Remove(f)
			continue
		}
		t.Errorf("%s describes no package; delete it", f)
	}
}

func reportLines(t *testing.T, pkg, golden, got string) {
	t.Helper()
	old, now := lineSet(golden), lineSet(got)
	for _, line := range slices.Sorted(maps.Keys(now)) {
		if !old[line] {
			t.Errorf("%s exports what api/ does not list: %s", pkg, line)
		}
	}
	for _, line := range slices.Sorted(maps.Keys(old)) {
		if !now[line] {
			t.Errorf("%s no longer exports: %s", pkg, line)
		}
	}
}

func lineSet(s string) map[string]bool {
	set := map[string]bool{}
	for line := range strings.Lines(s) {
		set[strings.TrimSpace(line)] = true
	}
	return set
}

// surface prints one line for each exported feature of the package in dir, in
// the manner of the standard library's own api/ files.
func surface(t *testing.T, dir string) []byte {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(dir, "*.go"))
	if err != nil {
		t.Fatal(err)
	}
	var lines []string
	fset := token.NewFileSet()
	for _, file := range files {
		if strings.HasSuffix(file, "_test.go") {
			continue
		}
		f, err := parser.ParseFile(fset, file, nil, parser.SkipObjectResolution)
		if err != nil {
			t.Fatal(err)
		}
		ast.FileExports(f)
		for _, d := range f.Decls {
			lines = append(lines, features(fset, d)...)
		}
	}
	slices.Sort(lines)
	return []byte(strings.Join(slices.Compact(lines), "\n") + "\n")
}

func features(fset *token.FileSet, d ast.Decl) (lines []string) {
	switch d := d.(type) {
	case *ast.FuncDecl:
		if d.Recv != nil && !ast.IsExported(receiver(d.Recv.List[0].Type)) {
			return nil
		}
		d.Body, d.Doc = nil, nil
		return []string{oneLine(fset, d)}
	case *ast.GenDecl:
		for _, spec := range d.Specs {
			switch s := spec.(type) {
			case *ast.ValueSpec:
				for _, n := range s.Names {
					lines = append(lines, d.Tok.String()+" "+n.Name)
				}
			case *ast.TypeSpec:
				lines = append(lines, typeFeatures(fset, s)...)
			}
		}
	}
	return lines
}

func typeFeatures(fset *token.FileSet, s *ast.TypeSpec) (lines []string) {
	name := "type " + s.Name.Name
	if s.TypeParams != nil {
		for _, p := range s.TypeParams.List {
			name += fmt.Sprintf("[%s %s]", p.Names[0].Name, oneLine(fset, p.Type))
		}
	}
	switch t := s.Type.(type) {
	case *ast.StructType:
		return append([]string{name + " struct"}, members(fset, name+" struct, ", t.Fields)...)
	case *ast.InterfaceType:
		return append([]string{name + " interface"}, members(fset, name+" interface, ", t.Methods)...)
	}
	return []string{name + " " + oneLine(fset, s.Type)}
}

func members(fset *token.FileSet, prefix string, fields *ast.FieldList) (lines []string) {
	for _, f := range fields.List {
		typ := oneLine(fset, f.Type)
		if len(f.Names) == 0 {
			lines = append(lines, prefix+"embeds "+typ)
		}
		for _, n := range f.Names {
			lines = append(lines, prefix+n.Name+" "+typ)
		}
	}
	return lines
}

func receiver(e ast.Expr) string {
	switch e := e.(type) {
	case *ast.StarExpr:
		return receiver(e.X)
	case *ast.IndexExpr:
		return receiver(e.X)
	case *ast.IndexListExpr:
		return receiver(e.X)
	case *ast.Ident:
		return e.Name
	}
	return ""
}

func oneLine(fset *token.FileSet, node any) string {
	var b bytes.Buffer
	if err := printer.Fprint(&b, fset, node); err != nil {
		return err.Error()
	}
	return strings.Join(strings.Fields(b.String()), " ")
}
