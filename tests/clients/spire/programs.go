//go:build programs

// Package programs names what is built by name and used as it is: the server and the agent of SPIRE.
package programs

import (
	_ "github.com/spiffe/spire/cmd/spire-agent"
	_ "github.com/spiffe/spire/cmd/spire-server"
)
