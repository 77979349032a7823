import { chownSync, mkdirSync } from 'node:fs'

/**
 * Gives the folders to the user, and goes on as this user: the root of a mounted disk belongs to root. Without effect if this
 * process is not root's.
 */
export function becomeUser(user: number, folders: string[]): void {
  if (process.getuid?.() !== 0) return
  for (const folder of folders) {
    mkdirSync(folder, { recursive: true })
    chownSync(folder, user, user)
  }
  process.setgroups?.([])
  process.setgid?.(user)
  process.setuid?.(user)
}
