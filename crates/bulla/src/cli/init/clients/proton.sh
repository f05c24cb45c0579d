# needs: pip install python-qpid-proton
python3 - <<'END'
from proton import Message, SSLDomain
from proton.utils import BlockingConnection

def connect(user, password_file):
    tls = SSLDomain(SSLDomain.MODE_CLIENT)
    tls.set_trusted_ca_db(«ca»)
    tls.set_peer_authentication(SSLDomain.VERIFY_PEER_NAME)
    password = open(password_file).read().strip()
    return BlockingConnection("amqps://" + «address», ssl_domain=tls, user=user, password=password)

connection = connect(«putter», «putter's password»)
connection.create_sender(«queue»).send(Message("two tons of barley", durable=True))
connection.close()

connection = connect(«getter», «getter's password»)
receiver = connection.create_receiver(«queue», credit=1)
print(receiver.receive(timeout=10).body)
receiver.accept()
connection.close()
END
