import { connect } from 'node:net'
import { env, exit, stderr, stdin, stdout } from 'node:process'

// Joins its input and output to the store's socket, for the platform, which starts it in the store's container. Not in
// TypeScript, which would double the time of its start.

const socket = connect({ path: env.RAG_SOCKET ?? '', allowHalfOpen: true })
socket.on('error', ({ message }) => stderr.write(`no store: ${message}\n`, () => exit(1)))
stdout.on('error', () => exit(0)) // nobody reads any more
socket.on('end', () => stdout.end(() => exit(0)))
socket.pipe(stdout, { end: false })
stdin.on('error', () => socket.end())
stdin.pipe(socket)
