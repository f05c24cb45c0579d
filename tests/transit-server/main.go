// A HashiCorp Vault in memory with its own transit engine, over HTTPS: what tests/e2e/transit.py runs where
// BULLA_TRANSIT_SERVER names it. It is given the files of a certificate and its key, and says its address, a root token and
// an unseal key (hexadecimal) in one line. `build` beside it makes it.
package main

import (
	"context"
	"crypto/tls"
	"fmt"
	"net"
	"net/http"
	"os"

	log "github.com/hashicorp/go-hclog"
	"github.com/hashicorp/vault/audit"
	"github.com/hashicorp/vault/builtin/logical/transit"
	"github.com/hashicorp/vault/helper/testhelpers/corehelpers"
	vaulthttp "github.com/hashicorp/vault/http"
	"github.com/hashicorp/vault/internalshared/configutil"
	"github.com/hashicorp/vault/sdk/logical"
	"github.com/hashicorp/vault/sdk/physical/inmem"
	"github.com/hashicorp/vault/vault"
)

func check(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func main() {
	if len(os.Args) != 3 {
		check(fmt.Errorf("usage: %s CERTIFICATE KEY", os.Args[0]))
	}
	logger := log.New(&log.LoggerOptions{Level: log.Error, Output: os.Stderr})
	storage, err := inmem.NewInmem(nil, logger)
	check(err)
	core, err := vault.NewCore(&vault.CoreConfig{
		Physical:        storage,
		Logger:          logger,
		DisableMlock:    true,
		BuiltinRegistry: corehelpers.NewMockBuiltinRegistry(),
		LogicalBackends: map[string]logical.Factory{"transit": transit.Factory},
		AuditBackends:   map[string]audit.Factory{audit.TypeFile: audit.NewFileBackend},
	})
	check(err)
	shares := &vault.SealConfig{SecretShares: 1, SecretThreshold: 1}
	made, err := core.Initialize(context.Background(), &vault.InitParams{BarrierConfig: shares})
	check(err)
	_, err = core.Unseal(made.SecretShares[0])
	check(err)
	handler := vaulthttp.Handler.Handler(&vault.HandlerProperties{Core: core, ListenerConfig: &configutil.Listener{}})
	pair, err := tls.LoadX509KeyPair(os.Args[1], os.Args[2])
	check(err)
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	check(err)
	fmt.Printf("%s %s %x\n", listener.Addr(), made.RootToken, made.SecretShares[0])
	server := &http.Server{Handler: handler, TLSConfig: &tls.Config{Certificates: []tls.Certificate{pair}}}
	check(server.ServeTLS(listener, "", ""))
}
