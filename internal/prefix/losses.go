package prefix

// maxRows is how many blocks' sets are intersected together.
const maxRows = 16

// losses is one word of the candidates after each row: it loses bits from row to row and never gets one back.
type losses [maxRows]uint64

// some intersects c with word w of fewer than maxRows rows, as if the last one were there again.
func (l *losses) some(c uint64, rows [][]uint64, w int) {
	for i, row := range rows {
		c &= row[w]
		l[i] = c
	}
	for i := len(rows); i < maxRows; i++ {
		l[i] = c
	}
}

// all is some for maxRows rows, written out: it is where Match spends its time when the holders change at every block.
func (l *losses) all(c uint64, rows *[maxRows][]uint64, w int) {
	l[0] = c & rows[0][w]
	l[1] = l[0] & rows[1][w]
	l[2] = l[1] & rows[2][w]
	l[3] = l[2] & rows[3][w]
	l[4] = l[3] & rows[4][w]
	l[5] = l[4] & rows[5][w]
	l[6] = l[5] & rows[6][w]
	l[7] = l[6] & rows[7][w]
	l[8] = l[7] & rows[8][w]
	l[9] = l[8] & rows[9][w]
	l[10] = l[9] & rows[10][w]
	l[11] = l[10] & rows[11][w]
	l[12] = l[11] & rows[12][w]
	l[13] = l[12] & rows[13][w]
	l[14] = l[13] & rows[14][w]
	l[15] = l[14] & rows[15][w]
}

// first is the first row without this bit, which one of them lacks. The search is binary, and without branches, since
// nobody could predict them.
func (l *losses) first(bit int) (row int) {
	shift := bit & 63
	row = int(l[7]>>shift&1) << 3
	row += int(l[(row+3)&(maxRows-1)]>>shift&1) << 2
	row += int(l[(row+1)&(maxRows-1)]>>shift&1) << 1
	row += int(l[row&(maxRows-1)] >> shift & 1)
	return row & (maxRows - 1)
}
