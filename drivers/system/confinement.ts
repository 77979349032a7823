import { createHash } from 'node:crypto'
import { chmod, chown } from 'node:fs/promises'
import { type RunOptions, run } from './programs.ts'

// What confines the programs that guests may break.

/**
 * A command that runs as root with these capabilities alone. Neither it nor its children can get others, whatever they
 * execute. Needs `setpriv` of util-linux.
 */
export const confined = (capabilities: string[], command: string[]): string[] => [
  'setpriv',
  '--no-new-privs',
  '--inh-caps=-all',
  ['--bounding-set=-all', ...capabilities.map((name) => `+${name}`)].join(','),
  '--',
  ...command,
]

// Above the users that systemd gives to containers, and below 2^31, beyond which programs mistake users for negative ones.
const firstUser = 0x7000_0000
const users = 0x0fff_ffff

/**
 * The user and group of a machine or a disk on its host, made from its id: nobody needs to keep a list. Of 100 on one host,
 * two have the same by a chance of 1 in 54,000.
 */
export const userOf = (id: string): number =>
  firstUser + (createHash('sha256').update(id).digest().readUInt32BE() % users)

/** Lets one user read and write a file. */
export async function giveFile(user: number, file: string): Promise<void> {
  await chown(file, user, user)
  await chmod(file, 0o600)
}

/** A file that a program starts with, open. */
export type Handle = { tap: { namespace: string; device: string } } | { listen: string } | { read: string }

/** The file descriptor of a program's first handle; the others follow. */
export const firstHandle = 3

/** What images/guest/helper/confine.go reads. */
export interface Confinement {
  program: string
  arguments: string[]
  user: number
  /** The group of what the program creates. */
  group: number
  /** Files and folders that the program sees, under their own names. The user's rights still count. */
  writable: string[]
  readable: string[]
  devices?: string[]
  /** A folder on which the program's view of the files is mounted; made if it is missing. */
  root: string
  /** Files through which a process enters control groups. */
  control_groups?: string[]
  /** Opened before the program starts, as its file descriptors 3, 4, …. */
  handles?: Handle[]
  /** One of the sockets to listen on. With it, the program goes on when it answers there. */
  monitor?: string
  /** Gets the pid of a program that goes on. */
  pid_file?: string
}

/**
 * Runs a program that guests may break: as a user of its own without capabilities, with its own files alone, and with a
 * network without devices. Returns when it has ended, or goes on by itself. `helper` is made of images/guest/helper; its
 * arguments contain `label`, by which it is found. Throws as `run`.
 */
export const confine = (
  helper: string,
  label: string,
  order: Confinement,
  options: Omit<RunOptions, 'input'> = {},
): Promise<string> => run(helper, ['confine', label], { ...options, input: JSON.stringify(order) })
