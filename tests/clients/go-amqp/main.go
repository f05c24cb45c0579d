// go-amqp as an unmodified client.
//
//	driver put|get|browse QUEUE -url amqp[s]://HOST:PORT [-user U -password P] [-ca FILE]
//	       [-cert FILE -key FILE] [-count N] [-kind text|binary|map|large] [-size BYTES]
//	       [-props] [-wait SECONDS] [-second]
//
// One JSON line a message on standard output; {"error": …} and exit code 1 where the other side refused.
package main

import (
	"bytes"
	"context"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"encoding/hex"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"time"

	amqp "github.com/Azure/go-amqp"
)

var (
	url      = flag.String("url", "", "")
	user     = flag.String("user", "", "")
	password = flag.String("password", "", "")
	ca       = flag.String("ca", "", "")
	cert     = flag.String("cert", "", "")
	key      = flag.String("key", "", "")
	count    = flag.Int("count", 1, "")
	kind     = flag.String("kind", "text", "")
	size     = flag.Int("size", 2048, "")
	props    = flag.Bool("props", false, "")
	wait     = flag.Float64("wait", 20, "")
	second   = flag.Bool("second", false, "receiver settle mode second")
)

func main() {
	if len(os.Args) < 3 {
		fail(errors.New("put|get|browse QUEUE"))
	}
	command, queue := os.Args[1], os.Args[2]
	if err := flag.CommandLine.Parse(os.Args[3:]); err != nil {
		fail(err)
	}
	ctx, cancel := context.WithTimeout(context.Background(), 120*time.Second)
	defer cancel()
	conn, err := amqp.Dial(ctx, *url, options())
	if err != nil {
		fail(err)
	}
	session, err := conn.NewSession(ctx, nil)
	if err != nil {
		fail(err)
	}
	switch command {
	case "put":
		put(ctx, session, queue)
	case "get":
		get(ctx, session, queue)
	default:
		fail(fmt.Errorf("go-amqp has no %s", command))
	}
	// Where the other side's close frame and its end of TLS arrive in one read, crypto/tls returns both and this library
	// drops the frame: it then says EOF of a connection that was closed in order.
	if err := conn.Close(); err != nil && err.Error() != io.EOF.Error() {
		fail(err)
	}
}

func options() *amqp.ConnOptions {
	options := &amqp.ConnOptions{ContainerID: fmt.Sprintf("go-%d", os.Getpid())}
	if *ca != "" {
		pem, err := os.ReadFile(*ca)
		if err != nil {
			fail(err)
		}
		pool := x509.NewCertPool()
		pool.AppendCertsFromPEM(pem)
		options.TLSConfig = &tls.Config{RootCAs: pool}
	}
	switch {
	case *user != "":
		options.SASLType = amqp.SASLTypePlain(*user, *password)
	case *cert != "":
		pair, err := tls.LoadX509KeyPair(*cert, *key)
		if err != nil {
			fail(err)
		}
		options.TLSConfig.Certificates = []tls.Certificate{pair}
		options.SASLType = amqp.SASLTypeExternal("")
	}
	// Without either: no SASL at all, which is this library's way to be anonymous.
	return options
}

func put(ctx context.Context, session *amqp.Session, queue string) {
	sender, err := session.NewSender(ctx, queue, nil)
	if err != nil {
		fail(err)
	}
	for number := range *count {
		message := message(number)
		if err := sender.Send(ctx, message, nil); err != nil {
			fail(err)
		}
		describe(message)
	}
}

func get(ctx context.Context, session *amqp.Session, queue string) {
	options := &amqp.ReceiverOptions{Credit: int32(*count)}
	if *second {
		options.SettlementMode = amqp.ReceiverSettleModeSecond.Ptr()
	}
	receiver, err := session.NewReceiver(ctx, queue, options)
	if err != nil {
		fail(err)
	}
	for range *count {
		waiting, cancel := context.WithTimeout(ctx, time.Duration(*wait*float64(time.Second)))
		message, err := receiver.Receive(waiting, nil)
		cancel()
		if errors.Is(err, context.DeadlineExceeded) {
			return
		}
		if err != nil {
			fail(err)
		}
		if err := receiver.AcceptMessage(ctx, message); err != nil {
			fail(err)
		}
		describe(message)
	}
}

func message(number int) *amqp.Message {
	var message *amqp.Message
	switch *kind {
	case "text":
		message = &amqp.Message{Value: fmt.Sprintf("message %d: naïve façade, 信封", number)}
	case "map":
		message = &amqp.Message{Value: map[string]any{
			"customer": "Zoë", "count": int64(3), "paid": true, "ratio": 0.25, "number": int64(number),
		}}
	default:
		block := sha256.Sum256(fmt.Appendf(nil, "go %d", number))
		message = amqp.NewMessage(bytes.Repeat(block[:], *size/len(block)+1)[:*size])
	}
	message.Header = &amqp.MessageHeader{Durable: true, Priority: 4}
	if *props {
		message.ApplicationProperties = map[string]any{
			"colour": "grün", "number": int32(42), "big": int64(1234567890123), "flag": true, "ratio": 2.5,
		}
	}
	return message
}

func describe(message *amqp.Message) {
	kind, body := canonical(message)
	digest := sha256.Sum256(body)
	properties := message.ApplicationProperties
	if properties == nil {
		properties = map[string]any{}
	}
	var id any
	if message.Properties != nil && message.Properties.MessageID != nil {
		id = fmt.Sprint(message.Properties.MessageID)
	}
	show(map[string]any{
		"kind": kind, "sha256": hex.EncodeToString(digest[:]), "length": len(body),
		"properties": properties, "message_id": id,
	})
}

// canonical is the kind of a body and the bytes that stand for it.
func canonical(message *amqp.Message) (string, []byte) {
	switch value := message.Value.(type) {
	case nil:
		return "binary", bytes.Join(message.Data, nil)
	case string:
		return "text", []byte(value)
	case map[string]any:
		return "map", encoded(value)
	case map[any]any:
		named := map[string]any{}
		for key, each := range value {
			named[fmt.Sprint(key)] = each
		}
		return "map", encoded(named)
	default:
		return fmt.Sprintf("%T", value), fmt.Append(nil, value)
	}
}

// encoded is JSON with sorted keys, as encoding/json writes maps, without its HTML escapes.
func encoded(value any) []byte {
	var out bytes.Buffer
	encoder := json.NewEncoder(&out)
	encoder.SetEscapeHTML(false)
	if err := encoder.Encode(value); err != nil {
		fail(err)
	}
	return bytes.TrimRight(out.Bytes(), "\n")
}

func show(fields map[string]any) {
	fmt.Println(string(encoded(fields)))
}

func fail(err error) {
	condition, description := "none", err.Error()
	var remote *amqp.Error
	var link *amqp.LinkError
	var conn *amqp.ConnError
	var session *amqp.SessionError
	switch {
	case errors.As(err, &link) && link.RemoteErr != nil:
		remote = link.RemoteErr
	case errors.As(err, &session) && session.RemoteErr != nil:
		remote = session.RemoteErr
	case errors.As(err, &conn) && conn.RemoteErr != nil:
		remote = conn.RemoteErr
	default:
		errors.As(err, &remote)
	}
	if remote != nil {
		condition, description = string(remote.Condition), remote.Description
	}
	show(map[string]any{"error": map[string]any{"condition": condition, "description": description}})
	os.Exit(1)
}
