import { readdir } from 'node:fs/promises'
import { run } from './commands.ts'
import { Names } from './names.ts'
import { isNamespace, makeNamespace, removeNamespace } from './namespaces.ts'

/** Network namespaces of members of a VPC that are neither containers nor machines, by the member's id. */
export interface MemberNamespaces {
  /** Returns the name in /run/netns. */
  make(id: string): Promise<string>
  /** Removes it with the NICs in it. Succeeds if there is none. Its processes must have ended. */
  remove(id: string): Promise<void>
  /** The ids of all on this host, including leftovers of a killed process. */
  list(): Promise<string[]>
}

/** Those of one host; several hosts may share a machine. */
export function makeMemberNamespaces(hostId: string): MemberNamespaces {
  const prefix = `${new Names(hostId).prefix}l-`
  const nameOf = (id: string): string => `${prefix}${id}`
  return {
    async make(id) {
      const name = nameOf(id)
      const isNew = !(await isNamespace(name))
      await makeNamespace(name)
      if (isNew) await run('ip', ['-n', name, 'link', 'set', 'lo', 'up'])
      return name
    },
    remove: (id) => removeNamespace(nameOf(id)),
    async list() {
      const all = await readdir('/run/netns').catch(() => [])
      return all.filter((name) => name.startsWith(prefix)).map((name) => name.slice(prefix.length))
    },
  }
}
