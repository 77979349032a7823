import { readFile } from 'node:fs/promises'
import { join, resolve } from 'node:path'
import { copiesOf, filesBelow, image, makeNode } from './base-images.ts'

// The image of microVMs for servers of stdio (KEELSON_TOOLS_IMAGE): Node with npx, MCP's reference server of files, and one
// whose tool says what it was started with.

const modules = resolve(import.meta.dirname, '../../node_modules')
const files = '@modelcontextprotocol/server-filesystem'

/** The package and all that it depends on, as folders below node_modules. */
async function closureOf(name: string, found = new Set<string>()): Promise<Set<string>> {
  if (found.has(name)) return found
  found.add(name)
  const { dependencies = {} } = JSON.parse(await readFile(join(modules, name, 'package.json'), 'utf8')) as {
    dependencies?: Record<string, string>
  }
  for (const one of Object.keys(dependencies)) await closureOf(one, found)
  return found
}

const revealing = `
const answers = {
  initialize: () => ({ protocolVersion: '2025-06-18', capabilities: { tools: {} }, serverInfo: { name: 'revealing', version: '1' } }),
  'tools/list': () => ({ tools: [{ name: 'one', description: JSON.stringify([process.argv.slice(2), process.env]), inputSchema: { type: 'object' } }] }),
}
console.error('this server writes to its errors')
console.log('and prints what is no message')
require('node:readline').createInterface(process.stdin).on('line', (line) => {
  const { id, method } = JSON.parse(line)
  const answer = answers[method]
  if (id !== undefined) console.log(JSON.stringify({ jsonrpc: '2.0', id, ...(answer ? { result: answer() } : { error: { code: -32601, message: 'none' } }) }))
})
`

/** The arguments of `node` for the servers. */
export const servers = { files: ['/opt/mcp/files.mjs', '/tmp'], revealing: ['/opt/mcp/revealing.js'] }

export async function makeMcpImage(): Promise<void> {
  await makeNode()
  const closure = [...(await closureOf(files))]
  const paths = (await Promise.all(closure.map((name) => filesBelow(join(modules, name))))).flat()
  const needed = [...new Set(paths)].filter((path) => /\.(js|mjs|cjs|json)$/.test(path))
  const entries = [
    ...(await copiesOf(needed, (path) => `opt/mcp/node_modules${path.slice(modules.length)}`)),
    {
      name: 'opt/mcp/files.mjs',
      mode: 0o644,
      content: `import './node_modules/${files}/dist/index.js'`,
    },
    { name: 'opt/mcp/revealing.js', mode: 0o644, content: revealing },
    {
      name: 'usr/local/bin/npx',
      type: 'symlink' as const,
      linkname: '../lib/node_modules/npm/bin/npx-cli.js',
    },
  ]
  await image('keelson/test-mcp', '1', entries, [], { base: 'keelson/test-node:24' })
}
