package main

import (
	"fmt"
	"os"

	"github.com/spf13/cobra"

	"shoal/internal/cluster"
)

func keygenCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "keygen [FILE]",
		Short: "Make a shoal's key: who has it is a peer",
		Long: `Makes a new key for a shoal and prints it, or writes it to FILE, which only its owner may read and which must not exist yet.
Every agent of the shoal gets the same key (agent --key-file). It encrypts the gossip, and the certificates by which peers
know each other are derived from it.`,
		Example: `  shoal keygen shoal.key
  shoal agent --key-file shoal.key --peer-listen 0.0.0.0:8081 --gossip-listen 0.0.0.0:8082 --engine http://127.0.0.1:8000`,
		Args: cobra.MaximumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			text := cluster.NewKey().Text() + "\n"
			if len(args) == 0 {
				fmt.Fprint(cmd.OutOrStdout(), text)
				return nil
			}
			f, err := os.OpenFile(args[0], os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
			if err != nil {
				return fmt.Errorf("keygen: %w", err)
			}
			if _, err := f.WriteString(text); err != nil {
				f.Close()
				return fmt.Errorf("keygen: %w", err)
			}
			return f.Close()
		},
	}
}
