"""Units of work by python-qpid-proton: a transaction whose every step has been answered."""

from proton import Delivery, Described
from proton.handlers import TransactionHandler

from proton_driver import Refused

TRANSACTIONAL = 0x34
ACCEPTED = 0x24
REJECTED = 0x25


class Unit(TransactionHandler):
    """A transaction of a blocking client; `settle_first` settles what is got before the discharge, or leaves that to the end."""

    def __init__(self, client, settle_first=True):
        super().__init__()
        self.client = client
        self.transaction = None
        self.ended = None
        self.condition = None
        blocking = client.connection
        blocking.container.declare_transaction(blocking.conn, handler=self, settle_before_discharge=settle_first)
        blocking.wait(lambda: self.transaction or self.ended, timeout=client.timeout, msg="declaring")
        if self.ended:
            raise Refused.from_condition(self.condition)

    def on_transaction_declared(self, event):
        self.transaction = event.transaction

    def on_transaction_declare_failed(self, event):
        self.condition = event.delivery.remote.condition
        self.ended = "not declared"

    def on_transaction_committed(self, event):
        self.ended = "committed"

    def on_transaction_aborted(self, event):
        self.ended = "aborted"

    def on_transaction_commit_failed(self, event):
        self.condition = event.delivery.remote.condition
        self.ended = "backed out"

    @property
    def id(self):
        return self.transaction.id

    def send(self, sender, message):
        """Sends, and returns without an answer; `outcome` waits for it."""
        self.client.connection.wait(lambda: sender.link.credit > 0, timeout=self.client.timeout, msg="credit")
        return self.transaction.send(sender.link, message)

    def outcome(self, delivery):
        """Until the message is part of the unit; Refused where it is not."""
        self.client.connection.wait(lambda: delivery.remote_state, timeout=self.client.timeout, msg="an outcome")
        if delivery.remote_state == Delivery.REJECTED:
            raise Refused.from_condition(delivery.remote.condition)
        assert delivery.remote_state == TRANSACTIONAL, delivery.remote_state
        txn_id, outcome = delivery.remote.data
        assert txn_id == self.id
        delivery.settle()
        if outcome.descriptor == REJECTED:
            raise Refused(*_error(outcome.value[0]))
        assert outcome == Described(ACCEPTED, []), outcome

    def put(self, sender, message):
        self.outcome(self.send(sender, message))

    def accept(self, receiver, message):
        """The message is gone once the unit commits."""
        self.transaction.accept(message.delivery)
        receiver.flush()

    def commit(self):
        """Refused where the unit was backed out instead."""
        self.transaction.commit()
        self._wait()
        if self.ended != "committed":
            raise Refused.from_condition(self.condition)

    def abort(self):
        self.transaction.abort()
        self._wait()
        assert self.ended == "aborted"

    def _wait(self):
        self.client.connection.wait(lambda: self.ended, timeout=self.client.timeout, msg="discharging")
        transport = self.client.connection.conn.transport
        self.client.connection.wait(lambda: transport.pending() <= 0, timeout=self.client.timeout)


def _error(described):
    condition, description, info = (list(described.value) + [None, None])[:3]
    return str(condition), description, info
