import { readdir, rm, statfs } from 'node:fs/promises'
import { namespaceFile, run } from './commands.ts'
import type { Names } from './names.ts'

/** The VPC namespaces of this host. */
export const vpcNamespaces = ({ prefix }: Names): Promise<string[]> => namespacesWith(`${prefix}v`)

/** The namespaces of paths on this host. */
export const pathNamespaces = ({ prefix }: Names): Promise<string[]> => namespacesWith(`${prefix}p`)

async function namespacesWith(prefix: string): Promise<string[]> {
  const all = await readdir('/run/netns').catch(() => [])
  const ours = all.filter((name) => name.startsWith(prefix))
  const whole = await Promise.all(ours.map(isNamespace))
  return ours.filter((_, i) => whole[i])
}

const nsfs = 0x6e_73_66_73

/** Whether it is a namespace: a killed `ip netns add` leaves only a file. */
export const isNamespace = (name: string): Promise<boolean> =>
  statfs(namespaceFile(name)).then(
    ({ type }) => type === nsfs,
    () => false,
  )

/**
 * `inside` finds a process that may still be in the namespace. Somebody may have deleted its name, which leaves it and all in it to
 * its processes: it gets its name back.
 */
export async function makeNamespace(
  name: string,
  inside: () => Promise<number | null> = async () => null,
): Promise<void> {
  if (await isNamespace(name)) return
  await rm(namespaceFile(name), { force: true })
  const pid = await inside()
  await run('ip', ['netns', ...(pid === null ? ['add', name] : ['attach', name, String(pid)])])
}

export async function removeNamespace(name: string): Promise<void> {
  if (await isNamespace(name)) await run('ip', ['netns', 'delete', name])
  else await rm(namespaceFile(name), { force: true })
}
