# needs: go mod init first && go get github.com/Azure/go-amqp
cat > main.go <<'END'
package main

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"log"
	"os"
	"strings"

	"github.com/Azure/go-amqp"
)

func must[T any](value T, err error) T {
	if err != nil {
		log.Fatal(err)
	}
	return value
}

func connect(ctx context.Context, user, passwordFile string) *amqp.Session {
	authorities := x509.NewCertPool()
	authorities.AppendCertsFromPEM(must(os.ReadFile(«ca»)))
	password := strings.TrimSpace(string(must(os.ReadFile(passwordFile))))
	connection := must(amqp.Dial(ctx, "amqps://"+«address», &amqp.ConnOptions{
		SASLType:  amqp.SASLTypePlain(user, password),
		TLSConfig: &tls.Config{RootCAs: authorities},
	}))
	return must(connection.NewSession(ctx, nil))
}

func main() {
	ctx := context.Background()
	sender := must(connect(ctx, «putter», «putter's password»).NewSender(ctx, «queue», nil))
	message := &amqp.Message{Header: &amqp.MessageHeader{Durable: true}, Value: "two tons of barley"}
	if err := sender.Send(ctx, message, nil); err != nil {
		log.Fatal(err)
	}
	receiver := must(connect(ctx, «getter», «getter's password»).NewReceiver(ctx, «queue», &amqp.ReceiverOptions{Credit: 1}))
	message = must(receiver.Receive(ctx, nil))
	fmt.Println(message.Value)
	if err := receiver.AcceptMessage(ctx, message); err != nil {
		log.Fatal(err)
	}
	if err := receiver.Close(ctx); err != nil {
		log.Fatal(err)
	}
}
END
go run main.go
