import { createHash } from 'node:crypto'
import { closeSync, fstatSync, readSync } from 'node:fs'
import type { LogFile, LogSource } from '../log-files.ts'
import { openAll, removeFile, type SeenFile } from './log-names.ts'

// Log files in the format of the Docker Engine's `json-file` driver. Machines use it too.

const mebibyte = 1024 ** 2
// log_cap_mib is split into this many files. With smaller ones, the engine would spend more on renames than on
// writing.
const logFiles = 5
const leastLogFileBytes = mebibyte / 2

/** `files` includes the backlog and the file being written; `keptFiles` is the number of full files within the cap. */
export function logLimits(
  capMib: number,
  backlogMib: number,
): { fileBytes: number; keptFiles: number; files: number } {
  const fileBytes = Math.max(Math.ceil((capMib * mebibyte) / logFiles), leastLogFileBytes)
  const keptFiles = Math.round((capMib * mebibyte) / fileBytes) - 1
  return { fileBytes, keptFiles, files: keptFiles + 1 + Math.ceil((backlogMib * mebibyte) / fileBytes) }
}

/** See LogFiles.open. */
export function openFiles(source: LogSource, which: 'over_cap' | 'all'): LogFile[] {
  const files = openAll(source.path, source.most_files)
  const lastAside = files.findLastIndex(({ number }) => number === null)
  const beyond = Math.max(lastAside + 1, files.length - 1 - source.kept_files)
  const wanted = which === 'all' ? files.length : beyond
  for (const { descriptor } of files.slice(wanted)) closeSync(descriptor)
  return files.slice(0, wanted).map((file) => openedFile(source, file))
}

// An entry holds at most 16 KiB of output, six times that if all of it is escaped.
const longestEntry = 128 * 1024
const newline = 0x0a

function openedFile({ path, most_files }: LogSource, file: SeenFile): LogFile {
  const { descriptor } = file
  const read = (from: number, bytes: number): Buffer => {
    const buffer = Buffer.allocUnsafe(bytes)
    return buffer.subarray(0, readSync(descriptor, buffer, 0, bytes, from))
  }
  const size = fstatSync(descriptor).size
  const isFull = file.number !== 0
  return {
    key: keyOf(read(0, longestEntry)),
    // The file being written may end inside a line. A full file that does was cut by a crash of the engine.
    bytes: isFull ? size : endOfLines(read(Math.max(0, size - longestEntry), longestEntry), size),
    after_gap: file.number === most_files,
    read(from, bytes) {
      const part = read(from, bytes)
      return from + part.length >= this.bytes
        ? part.subarray(0, this.bytes - from)
        : part.subarray(0, part.lastIndexOf(newline) + 1 || part.length)
    },
    drop: () => removeFile(path, file, most_files),
    close: () => closeSync(descriptor),
  }
}

const keyOf = (start: Buffer): string =>
  createHash('sha256')
    .update(start.subarray(0, start.indexOf(newline) + 1 || start.length))
    .digest('hex')

/** The offset after the last complete line, for a file of `size` bytes that ends with `end`. */
const endOfLines = (end: Buffer, size: number): number => size - (end.length - (end.lastIndexOf(newline) + 1))
