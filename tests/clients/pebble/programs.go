//go:build programs

// Package programs names what is built by name and used as it is: Pebble, the ACME server of Let's Encrypt for tests.
package programs

import _ "github.com/letsencrypt/pebble/v2/cmd/pebble"
