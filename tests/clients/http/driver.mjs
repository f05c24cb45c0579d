// Puts and gets over HTTPS with fetch, as a program in Node does. BASE is the path of a queue; prints what it saw as JSON.
//
//     NODE_EXTRA_CA_CERTS=ca.pem node driver.mjs BASE USER PASSWORD
import { createHash, randomBytes } from 'node:crypto'

const [base, user, password] = process.argv.slice(2)
const authorization = 'Basic ' + Buffer.from(`${user}:${password}`).toString('base64')
const digest = (bytes) => createHash('sha256').update(bytes).digest('hex')

async function ask(method, path, body, headers = {}) {
  const common = { authorization, 'ibm-mq-rest-csrf-token': '' }
  const response = await fetch(`${base}/${path}`, { method, body, headers: { ...common, ...headers } })
  return [response, Buffer.from(await response.arrayBuffer())]
}

const seen = {}
const text = { 'content-type': 'text/plain; charset=utf-8' }
const fields = { 'ibm-mq-md-correlationId': 'order 7', 'ibm-mq-md-priority': '7', 'ibm-mq-usr': 'crate;12;integer' }
const [put] = await ask('POST', 'message', 'zwei Tonnen Gerste: ä', { ...text, ...fields })
seen.put = put.status
seen.id = put.headers.get('ibm-mq-md-messageId')
const [shown, body] = await ask('GET', 'message?correlationId=order%207')
seen.shown = [shown.status, body.toString(), shown.headers.get('ibm-mq-md-messageId')]
seen.fields = ['ibm-mq-md-correlationId', 'ibm-mq-md-priority', 'ibm-mq-usr'].map((name) => shown.headers.get(name))
const [listed, list] = await ask('GET', 'messagelist')
seen.listed = [listed.status, JSON.parse(list).messages.length]
const [got, again] = await ask('DELETE', 'message')
seen.got = [got.status, again.toString()]
const large = randomBytes(1 << 20)
await ask('POST', 'message', large, { 'content-type': 'application/octet-stream' })
const [back, bytes] = await ask('DELETE', 'message?wait=5000')
seen.large = [back.status, digest(bytes) === digest(large), back.headers.get('content-type')]
const [none] = await ask('DELETE', 'message?wait=1')
seen.none = none.status
const forged = await fetch(`${base}/message`, { method: 'POST', body: 'x', headers: { authorization, ...text } })
seen.forged = [forged.status, (await forged.json()).error.cause]
console.log(JSON.stringify(seen))
