import { Readable } from 'node:stream'
import { buffer } from 'node:stream/consumers'
import { gzipSync } from 'node:zlib'
import { describe, expect, test } from '@jest/globals'
import { extract } from 'tar-stream'
import { type ArchiveEntry, tarOf } from '../../support/archives.ts'
import { type ArchiveLimits, checkedArchive } from '../../../drivers/archives/checked-archive.ts'

const limits: ArchiveLimits = { entries: 100, bytes: 1_000_000, ratio: 50, ratio_from_bytes: 100_000 }

async function checked(tgz: Uint8Array, within = limits) {
  const { files, found } = checkedArchive(Readable.from([Buffer.from(tgz)]), within)
  return { tar: await buffer(files), ...found() }
}

const check = async (entries: ArchiveEntry[]) => checked(gzipSync(await tarOf(entries)))

test('an archive keeps its files, folders and inner links, as root’s and without special modes', async () => {
  const { tar, files, bytes } = await check([
    { name: './' },
    { name: './src/', type: 'directory', mode: 0o700, uid: 1000 },
    { name: './src/main.js', content: 'main', mode: 0o4777, uid: 1000 },
    { name: 'package.json', content: '{}', mode: 0o600 },
    { name: 'src/link', type: 'symlink', linkname: '../package.json' },
    { name: 'now', type: 'symlink', linkname: './src' },
  ])
  expect({ files, bytes }).toEqual({ files: 2, bytes: 6 })
  const found: unknown[] = []
  const reader = extract()
  reader.end(tar)
  for await (const entry of reader) {
    const { name, type, mode, uid, linkname } = entry.header
    found.push([name, type, mode, uid, linkname, String(await buffer(entry))])
  }
  expect(found).toEqual([
    ['src', 'directory', 0o755, 0, null, ''],
    ['src/main.js', 'file', 0o755, 0, null, 'main'],
    ['package.json', 'file', 0o644, 0, null, '{}'],
    ['src/link', 'symlink', 0o777, 0, '../package.json', ''],
    ['now', 'symlink', 0o777, 0, './src', ''],
  ])
})

/** A pax header for the next entry: tar-stream writes only those that are right. */
async function extendedHeader(content: string): Promise<Buffer> {
  const tar = (await tarOf([{ name: 'x', content }])).subarray(0, -1024)
  tar.write('x', 156)
  tar.fill(' ', 148, 156)
  const sum = tar.subarray(0, 512).reduce((all, byte) => all + byte, 0)
  tar.write(sum.toString(8).padStart(6, '0'), 148)
  return tar
}

const link = (name: string, linkname: string): ArchiveEntry => ({ name, type: 'symlink', linkname })

describe('an archive is refused', () => {
  test.each<[string, ArchiveEntry[]]>([
    ['an absolute path', [{ name: '/etc/passwd', content: 'x' }]],
    ['a path that leaves the folder', [{ name: 'a/../../x', content: 'x' }]],
    ['an absolute link', [link('a', '/etc')]],
    ['a link that leaves the folder', [link('a/b', '../../x')]],
    ['a link that leaves the folder through another one', [link('d', '.'), link('e', 'd/../x')]],
    ['a file below a link', [link('d', '.'), { name: 'd/x', content: 'x' }]],
    ['a link below a link', [link('d', '.'), link('d/d/x', '../../y')]],
    ['a link in the place of a folder', [{ name: 'a/x', content: 'x' }, link('a', '.')]],
    ['a file in the place of a link', [link('a', 'b'), { name: 'a', content: 'x' }]],
    ['a hard link', [{ name: 'a', type: 'link', linkname: 'b' }]],
    ['a device', [{ name: 'a', type: 'character-device', devmajor: 1, devminor: 3 }]],
    ['a pipe', [{ name: 'a', type: 'fifo' }]],
    ['too many entries', Array.from({ length: 101 }, (_, i) => ({ name: `f${i}`, content: 'x' }))],
    ['too much content', [{ name: 'a', content: 'ab'.repeat(600_000) }]],
    ['content that packs too well', [{ name: 'a', content: 'a'.repeat(500_000) }]],
    ['a path too deep', [{ name: 'a/'.repeat(70), type: 'directory' }]],
  ])('with %s', async (_, entries) => {
    await expect(check(entries)).rejects.toMatchObject({ code: 'archive_refused', permanent: true })
  })

  test.each([
    ['a header of more than 4 MiB', 'x'.repeat(5_000_000)],
    ['a size that is no number', '12 size=abc\n'],
    ['a size below zero', '11 size=-5\n'],
  ])('with %s', async (_, extended) => {
    const within = { ...limits, bytes: 10_000_000, ratio_from_bytes: 10_000_000 }
    const tar = Buffer.concat([await extendedHeader(extended), await tarOf([{ name: 'a', content: 'a' }])])
    await expect(checked(gzipSync(tar), within)).rejects.toMatchObject({ code: 'archive_refused' })
  })

  test.each([
    ['no gzip', Buffer.from('hello')],
    ['no tar', gzipSync('hello'.repeat(500))],
    ['a path that leaves the folder', null],
  ])('with %s before it has arrived whole', async (_, first) => {
    const source = new Readable({ read() {} })
    source.push(first ?? gzipSync(await tarOf([{ name: '../x', content: 'x' }])))
    const { files } = checkedArchive(source, limits)
    await expect(buffer(files)).rejects.toMatchObject({ code: 'archive_refused' })
  })

  test('only for what is in it: a source that breaks off is not its fault', async () => {
    for (const error of [new Error('reset'), undefined]) {
      const source = new Readable({ read() {} })
      source.push(gzipSync(await tarOf([{ name: 'a', content: 'a' }])).subarray(0, 20))
      const { files } = checkedArchive(source, limits)
      setImmediate(() => source.destroy(error))
      await expect(buffer(files)).rejects.toThrow(error?.message ?? 'Premature close')
    }
  })

  test('that is no gzip, no tar, or cut off', async () => {
    const tgz = gzipSync(await tarOf([{ name: 'a', content: Math.random().toString().repeat(1000) }]))
    for (const bytes of [Buffer.from('hello'), gzipSync('hello'.repeat(500)), tgz.subarray(0, -100)])
      await expect(checked(bytes)).rejects.toMatchObject({ code: 'archive_refused' })
  })
})
