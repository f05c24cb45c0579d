# needs: dotnet new console && dotnet add package AMQPNetLite
cat > Program.cs <<'END'
using System.Net.Security;
using System.Security.Cryptography.X509Certificates;
using Amqp;
using Amqp.Framing;

var authority = X509Certificate2.CreateFromPem(File.ReadAllText(«ca»));

async Task<Session> Connect(string user, string passwordFile)
{
    var factory = new ConnectionFactory();
    factory.SSL.RemoteCertificateValidationCallback = (sender, certificate, chain, errors) =>
    {
        if (certificate == null || chain == null || (errors & ~SslPolicyErrors.RemoteCertificateChainErrors) != 0)
        {
            return false;
        }
        chain.ChainPolicy.TrustMode = X509ChainTrustMode.CustomRootTrust;
        chain.ChainPolicy.CustomTrustStore.Add(authority);
        chain.ChainPolicy.RevocationMode = X509RevocationMode.NoCheck;
        return chain.Build(new X509Certificate2(certificate));
    };
    var password = File.ReadAllText(passwordFile).Trim();
    return new Session(await factory.CreateAsync(new Address(«host», int.Parse(«port»), user, password, "/", "AMQPS")));
}

var putting = await Connect(«putter», «putter's password»);
var message = new Message("two tons of barley") { Header = new Header { Durable = true } };
await new SenderLink(putting, "put", «queue»).SendAsync(message);
await putting.Connection.CloseAsync();

var getting = await Connect(«getter», «getter's password»);
var receiver = new ReceiverLink(getting, "get", «queue»);
message = await receiver.ReceiveAsync(TimeSpan.FromSeconds(10));
Console.WriteLine(message.Body);
receiver.Accept(message);
await getting.Connection.CloseAsync();
END
dotnet run
