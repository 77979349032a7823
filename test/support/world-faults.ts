import { setTimeout as delay } from 'node:timers/promises'
import { platform, type RoleName } from './platform.ts'
import type { Dice } from './random.ts'
import { isDrawn } from './sampled.ts'
import { silentHost } from './silent-host.ts'
import type { SmallDisk } from './small-disk.ts'
import { withSmallDisk } from './small-disk-host.ts'
import type { World } from './world.ts'

/** What goes wrong in the middle of a round. */
export interface Fault {
  words: string
  /** Resolves when it is over. What it broke is not yet mended. */
  happen: () => Promise<unknown>
  /** Operations may fail meanwhile, and say why. By default, they succeed nevertheless. */
  mayFail?: boolean
}

/** Longer than a step is waited for, shorter than a copy waits for its source. */
const silentMs = 45_000
/** Longer than the time between two looks of a host at its disks. */
const fullMs = 20_000
/** Of the short form, those that have a prepared host. */
const share = 1 / 3
/** Of all faults, those that take a minute. */
const slowShare = 1 / 5
/** Room for all disks of the world, most of which stays empty. */
const smallBytes = 40 * 1024 ** 3

/** Faults of a world. Those for which a host is prepared are in the long form, and in a share of the others. */
export interface Faults {
  draw: (dice: Dice) => Fault
  end: () => Promise<void>
}

export async function openFaults(world: World): Promise<Faults> {
  const victims: RoleName[] = [
    'worker',
    'api',
    'temporal',
    'mongodb',
    ...world.hosts.map(({ roles }) => roles.host),
  ]
  const kill = (dice: Dice): Fault => {
    const role = dice.one(victims)
    return { words: `kill of ${role}`, happen: () => platform.restartKilled(role) }
  }
  const freeze = (dice: Dice): Fault => {
    const role = dice.one(victims)
    return { words: `freeze of ${role}`, happen: () => platform.freeze(role) }
  }
  const slow = [freeze, freeze]
  const ends: (() => Promise<unknown>)[] = []

  const [, second] = world.hosts
  if (second) {
    const network = silentHost(second)
    slow.push(() => ({ words: `dropped packets of ${second.name}`, happen: () => silentFor(network) }))
    ends.push(network.pass)
  }
  if (second && isDrawn('a full disk', share)) {
    const small = await withSmallDisk(second, smallBytes)
    const happen = (): Promise<void> => fullFor(small)
    slow.push(() => ({ words: `full disk of ${second.name}`, happen, mayFail: true }))
    ends.push(() => small.end())
  }
  return {
    draw: (dice) => (dice.chance(slowShare) ? dice.one(slow)(dice) : kill(dice)),
    async end() {
      for (const end of ends) await end()
    },
  }
}

async function silentFor({ silence, pass }: { silence: () => unknown; pass: () => unknown }): Promise<void> {
  await silence()
  await delay(silentMs)
  await pass()
}

async function fullFor(small: SmallDisk): Promise<void> {
  await small.keepFull()
  await delay(fullMs)
  await small.clear()
}
