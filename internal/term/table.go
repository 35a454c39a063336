package term

import (
	"fmt"
	"strings"
)

// Table is rows of text under named columns. The zero value has no columns; see NewTable. It belongs to one goroutine.
type Table struct {
	columns []Column
	rows    [][]string
}

// Column is one column of a Table: its heading, and whether its cells end at the right edge (numbers do).
type Column struct {
	Name  string
	Right bool
}

// Left makes a column of words, Right one of numbers.
func Left(name string) Column  { return Column{Name: name} }
func Right(name string) Column { return Column{Name: name, Right: true} }

// NewTable starts a table with these columns.
func NewTable(columns ...Column) *Table { return &Table{columns: columns} }

// Row adds one row. A cell may hold styles made by an Output. It panics on another number of cells than of columns.
func (t *Table) Row(cells ...string) {
	if len(cells) != len(t.columns) {
		panic(fmt.Sprintf("term: a row of %d cells in a table of %d columns", len(cells), len(t.columns)))
	}
	row := make([]string, len(cells))
	for i, c := range cells {
		row[i] = strings.ReplaceAll(strings.ReplaceAll(Clean(c), "\n", " "), "\t", " ")
	}
	t.rows = append(t.rows, row)
}

// Len is the number of rows.
func (t *Table) Len() int { return len(t.rows) }

// String is the table as plain aligned text; headings are not styled.
func (t *Table) String() string { return t.text(func(s string) string { return s }) }

// Table prints t, its headings in bold.
func (o *Output) Table(t *Table) { o.print(t.text(o.Bold)) }

func (t *Table) text(heading func(string) string) string {
	widths := make([]int, len(t.columns))
	for i, c := range t.columns {
		widths[i] = visible(c.Name)
		for _, r := range t.rows {
			widths[i] = max(widths[i], visible(r[i]))
		}
	}
	var b strings.Builder
	line := func(cells []string) {
		var l strings.Builder
		for i, c := range cells {
			if i > 0 {
				l.WriteString("  ")
			}
			pad := strings.Repeat(" ", widths[i]-visible(c))
			if t.columns[i].Right {
				l.WriteString(pad + c)
			} else {
				l.WriteString(c + pad)
			}
		}
		b.WriteString(strings.TrimRight(l.String(), " ") + "\n")
	}
	head := make([]string, len(t.columns))
	for i, c := range t.columns {
		head[i] = heading(c.Name)
	}
	line(head)
	for _, r := range t.rows {
		line(r)
	}
	return b.String()
}

// Markdown is the same table as GitHub-flavoured Markdown.
func (t *Table) Markdown() string {
	var b strings.Builder
	row := func(cells []string) {
		b.WriteString("|")
		for _, c := range cells {
			b.WriteString(" " + strings.ReplaceAll(c, "|", "\\|") + " |")
		}
		b.WriteString("\n")
	}
	head := make([]string, len(t.columns))
	rule := make([]string, len(t.columns))
	for i, c := range t.columns {
		head[i], rule[i] = c.Name, "---"
		if c.Right {
			rule[i] = "---:"
		}
	}
	row(head)
	row(rule)
	for _, r := range t.rows {
		row(r)
	}
	return b.String()
}
