package transfer

import (
	"io"
	"os"
)

func (c *conn) sendFile(head []byte, f *os.File, off int64, n int) error {
	if _, err := c.nc.Write(head); err != nil {
		return err
	}
	_, err := io.Copy(c.nc, io.NewSectionReader(f, off, int64(n)))
	return err
}
