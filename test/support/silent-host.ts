import { runIn } from '../../drivers/linux/commands.ts'
import { namespaceOf } from './host-networks.ts'
import type { TestHost } from './hosts.ts'

const dropping = (hook: string, link: string): string =>
  `chain ${hook} { type filter hook ${hook} priority 0; ${link} != "lo" drop; }`

/** A further host's network, which can drop every packet from and to other hosts. Its own program is not in it. */
export function silentHost(host: TestHost): { silence: () => Promise<void>; pass: () => Promise<void> } {
  const namespace = namespaceOf(host)
  const table = 'inet keelson_test_silence'
  const rules = `table ${table} {\n${dropping('input', 'iifname')}\n${dropping('output', 'oifname')}\n}\n`
  const set = async (text: string): Promise<void> => void (await runIn(namespace, 'nft', ['-f', '-'], text))
  // `delete` alone would fail without the table.
  const pass = () => set(`add table ${table}\ndelete table ${table}\n`)
  return { silence: () => set(rules), pass }
}
