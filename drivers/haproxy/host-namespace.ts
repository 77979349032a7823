import { rm, stat } from 'node:fs/promises'
import { namespaceFile, run } from '../linux/commands.ts'
import { isNamespace, removeNamespace } from '../linux/namespaces.ts'

// HAProxy listens in the host's own namespace by its name in /run/netns. The first host of a machine has none, so it
// gets one.

const nameOf = (mark: string): string => `keelson-${mark}`

/** The name of this process's namespace. */
export async function nameHostNamespace(mark: string): Promise<string> {
  const name = nameOf(mark)
  if (await isNamespace(name)) {
    const [named, own] = await Promise.all(
      [namespaceFile(name), '/proc/self/ns/net'].map((file) => stat(file)),
    )
    if (named?.ino === own?.ino) return name
    await removeNamespace(name)
  }
  await rm(namespaceFile(name), { force: true })
  await run('ip', ['netns', 'attach', name, String(process.pid)])
  return name
}

/** Only the name goes, not the namespace. */
export const unnameHostNamespace = (mark: string): Promise<void> => removeNamespace(nameOf(mark))
