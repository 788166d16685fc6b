// Renders the templates of a chart as Helm does, by Go's own text/template, for where Helm itself is not installed.
//
//	go run helm_render.go CHART RELEASE < VALUES.json > MANIFESTS.yaml
//
// Known are the functions that the chart uses; toYaml writes JSON, which is YAML. A value that is missing is an error.
package main

import (
	"bytes"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"text/template"
)

func main() {
	chart, release := os.Args[1], os.Args[2]
	var values, described map[string]any
	check(json.NewDecoder(os.Stdin).Decode(&values))
	described = values["Chart"].(map[string]any)
	delete(values, "Chart")
	all := template.New("chart").Option("missingkey=error")
	all.Funcs(template.FuncMap{
		"include": func(name string, data any) (string, error) {
			var out bytes.Buffer
			err := all.ExecuteTemplate(&out, name, data)
			return out.String(), err
		},
		"toYaml": func(value any) (string, error) {
			text, err := json.Marshal(value)
			return string(text), err
		},
		"nindent": func(spaces int, text string) string {
			pad := "\n" + strings.Repeat(" ", spaces)
			return pad + strings.ReplaceAll(text, "\n", pad)
		},
		"quote":      func(value any) string { return fmt.Sprintf("%q", fmt.Sprint(value)) },
		"trunc":      func(most int, text string) string { return text[:min(most, len(text))] },
		"trimSuffix": func(end, text string) string { return strings.TrimSuffix(text, end) },
		"regexFind":  func(what, text string) string { return regexp.MustCompile(what).FindString(text) },
		"sha256sum":  func(text string) string { return fmt.Sprintf("%x", sha256.Sum256([]byte(text))) },
		"join": func(between string, items []any) string {
			words := []string{}
			for _, item := range items {
				words = append(words, fmt.Sprint(item))
			}
			return strings.Join(words, between)
		},
		"default": func(other, value any) any {
			if value == nil || value == "" {
				return other
			}
			return value
		},
	})
	files, err := filepath.Glob(filepath.Join(chart, "templates", "*"))
	check(err)
	for _, file := range files {
		text, err := os.ReadFile(file)
		check(err)
		template.Must(all.New(filepath.Base(file)).Parse(string(text)))
	}
	data := map[string]any{
		"Values":  values,
		"Chart":   map[string]any{"AppVersion": described["appVersion"]},
		"Release": map[string]any{"Name": release, "Namespace": "default", "Service": "Helm"},
	}
	for _, file := range files {
		if name := filepath.Base(file); strings.HasSuffix(name, ".yaml") {
			fmt.Println("---")
			check(all.ExecuteTemplate(os.Stdout, name, data))
		}
	}
}

func min(a, b int) int {
	if a < b {
		return a
	}
	return b
}

func check(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}
