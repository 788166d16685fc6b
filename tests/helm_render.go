// Renders the templates of a chart as Helm does, by Go's own text/template, for where Helm itself is not installed.
//
//	go run helm_render.go CHART RELEASE < VALUES.json > MANIFESTS.yaml
//
// Known are the functions that the chart uses; toYaml writes the values of a list or
// a map as JSON, which is YAML. A value that is missing is an error.
package main

import (
	"bytes"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"sort"
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
		"toYaml": toYaml,
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
		"contains": func(part, text string) bool { return strings.Contains(text, part) },
		"fail":     func(text string) (string, error) { return "", errors.New(text) },
		"ternary": func(yes, no any, which bool) any {
			if which {
				return yes
			}
			return no
		},
		"dict": func(items ...any) map[string]any {
			made := map[string]any{}
			for i := 0; i+1 < len(items); i += 2 {
				made[items[i].(string)] = items[i+1]
			}
			return made
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
		"Files":   chartFiles(chart),
		"Release": map[string]any{"Name": release, "Namespace": "default", "Service": "Helm"},
	}
	for _, file := range files {
		if name := filepath.Base(file); strings.HasSuffix(name, ".yaml") {
			fmt.Println("---")
			check(all.ExecuteTemplate(os.Stdout, name, data))
		}
	}
}

func toYaml(value any) string {
	lines := []string{}
	add := func(before string, item any) error {
		text, err := json.Marshal(item)
		lines = append(lines, before+string(text))
		return err
	}
	switch found := value.(type) {
	case []any:
		for _, item := range found {
			check(add("- ", item))
		}
	case map[string]any:
		for key, item := range found {
			check(add(fmt.Sprintf("%q: ", key), item))
		}
		sort.Strings(lines)
	}
	if len(lines) == 0 {
		check(add("", value))
	}
	return strings.Join(lines, "\n")
}

type chartFiles string

// Get returns the text of a file of the chart, as Helm's .Files.Get.
func (chart chartFiles) Get(name string) (string, error) {
	text, err := os.ReadFile(filepath.Join(string(chart), name))
	return string(text), err
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
