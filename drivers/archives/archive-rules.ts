import { posix } from 'node:path'
import type { Header } from 'tar-stream'
import { ArchiveRefused } from '../errors.ts'

// Which entries of an archive are taken.

const longestPath = 1024
const deepest = 64

/** Decides entry by entry; it remembers what the entries before were. */
export function makeArchiveRules(mostEntries: number) {
  const seen = new Map<string, 'file' | 'directory' | 'symlink'>()
  let entries = 0
  let files = 0
  let bytes = 0

  /** The parents are folders: not what an earlier entry has made a link or a file. */
  function needFolders(path: string): void {
    for (let parent = posix.dirname(path); parent !== '.'; parent = posix.dirname(parent)) {
      const known = seen.get(parent)
      if (known === undefined) seen.set(parent, 'directory')
      else if (known !== 'directory') throw new ArchiveRefused(`${shown(path)} is below a link or a file`)
    }
  }

  return {
    files: () => files,
    bytes: () => bytes,

    /** The header to write; null: the folder itself. */
    check({
      name,
      type,
      size,
      mode,
      linkname,
      mtime,
    }: Header): (Partial<Header> & Pick<Header, 'name'>) | null {
      if (++entries > mostEntries) throw new ArchiveRefused(`it has more than ${mostEntries} entries`)
      const path = inside(name)
      if (path === null) return null
      if (type !== 'file' && type !== 'contiguous-file' && type !== 'directory' && type !== 'symlink')
        throw new ArchiveRefused(`${shown(path)} is not a file, folder or symbolic link`)
      needFolders(path)
      const known = seen.get(path)
      const kind = type === 'contiguous-file' ? 'file' : type
      if (known !== undefined && !(known === 'directory' && kind === 'directory'))
        throw new ArchiveRefused(`${shown(path)} is in it twice`)
      seen.set(path, kind)
      const its = { name: path, type: kind, uid: 0, gid: 0, mtime }
      if (kind === 'symlink') {
        needInside(path, linkname)
        return { ...its, mode: 0o777, linkname: linkname }
      }
      if (kind === 'directory') return { ...its, mode: 0o755 }
      files++
      bytes += size
      return { ...its, size, mode: mode & 0o100 ? 0o755 : 0o644 }
    },
  }
}

/** The path without `.` and slashes too many. Null: the folder itself. */
function inside(name: string): string | null {
  if (name.includes('\0')) throw new ArchiveRefused('a name has a NUL')
  if (name.startsWith('/')) throw new ArchiveRefused(`${shown(name)} is an absolute path`)
  if (name.split('/').includes('..')) throw new ArchiveRefused(`${shown(name)} leaves the folder`)
  const path = posix.normalize(name).replace(/\/$/, '')
  if (path === '.' || path === '') return null
  if (path.length > longestPath || path.split('/').length > deepest)
    throw new ArchiveRefused(`${shown(path)} is too long or too deep`)
  return path
}

/** Only leading `..`s, and no more than there are folders above: so it stays inside through other such links. */
function needInside(path: string, target: string): void {
  const parts = target.split('/').filter((part) => part !== '' && part !== '.')
  const up = parts.findIndex((part) => part !== '..')
  const above = up === -1 ? parts.length : up
  const isInside =
    target !== '' &&
    !target.startsWith('/') &&
    !target.includes('\0') &&
    !parts.slice(above).includes('..') &&
    above <= path.split('/').length - 1
  if (!isInside) throw new ArchiveRefused(`the link ${shown(path)} leaves the folder`)
}

const shown = (path: string): string => JSON.stringify(path.slice(0, 100))
