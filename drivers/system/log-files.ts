import { createHash } from 'node:crypto'
import { closeSync, fstatSync, readSync } from 'node:fs'
import type { LogFile, LogSource } from '../log-files.ts'
import { openAll, removeFile, type SeenFile } from './log-names.ts'

// Output in files of the form that the Docker Engine's `json-file` driver gives them. Machines write the same form.

const mebibyte = 1024 ** 2
// log_cap_mib is spread over so many files. Smaller ones would cost the engine more in renames than in writing.
const logFiles = 5
const leastLogFileBytes = mebibyte / 2

/** `files` has room for a backlog as well, and for the file that is written to; `keptFiles` are those full ones that the cap leaves. */
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

// An entry is 16 KiB of output at most, six times that where all of it is escaped.
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
    // What is being written may end in the middle of a line; a full file that does was cut by a crash of the engine.
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

/** Where the last whole line ends, of a file of that size with this end. */
const endOfLines = (end: Buffer, size: number): number => size - (end.length - (end.lastIndexOf(newline) + 1))
