import { buffer } from 'node:stream/consumers'
import { gzipSync } from 'node:zlib'
import { type Header, pack } from 'tar-stream'

export type ArchiveEntry = Partial<Header> & Pick<Header, 'name'> & { content?: string | Uint8Array }

export async function tarOf(entries: ArchiveEntry[]): Promise<Buffer> {
  const files = pack()
  for (const { content, ...header } of entries) files.entry(header, content ?? '')
  files.finalize()
  return buffer(files)
}

/** A .tgz of these files. */
export const archiveOf = async (files: Record<string, string | Uint8Array>): Promise<Buffer> =>
  gzipSync(await tarOf(Object.entries(files).map(([name, content]) => ({ name, content }))))
