import { existsSync } from 'node:fs'
import { readdir, readFile, readlink } from 'node:fs/promises'
import { join, resolve } from 'node:path'
import type { ArchiveEntry } from '../archives.ts'
import { copiesOf, image, librariesOf } from '../base-images.ts'

/** One public image, of which a stand-in can be made where its programs are. */
export interface StandIn {
  /** Whether this machine has its programs. */
  isHere: boolean
  make: (repo: string, tag: string) => Promise<void>
}

const tools = resolve(process.env['KEELSON_TOOLS'] ?? '.state/tools')
/** A path in the folder of tools. */
export const inTools = (path: string): string => join(tools, path)

/** What such an image has and says, beside busybox. `changes`: lines of a Dockerfile. */
export interface Parts {
  entries: ArchiveEntry[]
  changes: string[]
}

/** A stand-in that needs these paths in the folder of tools. */
export const standIn = (needs: string[], parts: () => Promise<Parts>): StandIn => ({
  isHere: needs.every((path) => existsSync(inTools(path))),
  async make(repo, tag) {
    const { entries, changes } = await parts()
    await image(repo, tag, entries, changes)
  },
})

/** A program of a folder of tools, which needs no libraries, at its path in the image. */
export const goProgram = (from: string, to: string): Promise<ArchiveEntry[]> =>
  copiesOf([inTools(from)], () => to)

/** A program of a folder of tools at its path in the image, with its libraries. */
export async function program(from: string, to: string, root = ''): Promise<ArchiveEntry[]> {
  const path = inTools(from)
  return [...(await copiesOf([path], () => to)), ...(await librariesOf([path], root && inTools(root)))]
}

/** All files and links below a folder of tools, at another folder of the image. */
export async function folderAt(from: string, to: string): Promise<ArchiveEntry[]> {
  const folder = inTools(from)
  const found = await readdir(folder, { recursive: true, withFileTypes: true })
  const files = found.filter((entry) => entry.isFile() || entry.isSymbolicLink())
  return Promise.all(
    files.map(async (entry): Promise<ArchiveEntry> => {
      const path = join(entry.parentPath, entry.name)
      const name = join(to, path.slice(folder.length + 1))
      if (entry.isFile()) return { name, mode: 0o755, content: await readFile(path) }
      return { name, type: 'symlink', linkname: await readlink(path) }
    }),
  )
}

/** An empty folder of the image, of this user. */
export const ownFolder = (name: string, uid: number, mode = 0o755): ArchiveEntry => ({
  name,
  type: 'directory',
  mode,
  uid,
  gid: uid,
})

export const script = (name: string, content: string): ArchiveEntry => ({
  name,
  mode: 0o755,
  content: `#!/bin/sh\n${content}\n`,
})

/** A list of a Dockerfile: of a command, or of an entry point. */
export const list = (...words: string[]): string => JSON.stringify(words)
