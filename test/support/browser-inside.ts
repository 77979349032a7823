import { spawn } from 'node:child_process'
import { connect, createServer } from 'node:net'
import { pipeline } from 'node:stream'
import { run } from '../../drivers/system/programs.ts'

// Runs in the network namespace of a test's browser: browser-inside.ts SOCKET CHROMIUM ARGUMENTS... What comes to the SOCKS
// port goes to the socket, behind which a test connects (browser-network.ts). Ends with the browser.

const [socket = '', chromium = '', ...args] = process.argv.slice(2)
await run('ip', ['link', 'set', 'lo', 'up'])
const relay = createServer((inside) => {
  const outside = connect(socket)
  pipeline(inside, outside, () => {})
  pipeline(outside, inside, () => {})
})
await new Promise<void>((resolve) => relay.listen(1080, '127.0.0.1', resolve))
// 3 and 4 are the pipes by which a test tells the browser what to do.
const browser = spawn(
  chromium,
  ['--proxy-server=socks5://127.0.0.1:1080', '--proxy-bypass-list=<-loopback>', ...args],
  {
    stdio: [0, 1, 2, 3, 4],
  },
)
browser.on('exit', (code) => process.exit(code ?? 1))
