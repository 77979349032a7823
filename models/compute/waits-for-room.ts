// A running instance that has no room to write.

/** What a report says of it, with the entry and the words of its activity feed, and the reason in its record. */
export interface Roomless {
  entry: 'waits_for_room' | 'disk_full'
  message: string
  reason: string
  /** Said once it has room. */
  after: string
}

/** A machine that stands still: a write to one of its disks finds no room on the disk of its host. */
const waiting = (title: string): Roomless => ({
  entry: 'waits_for_room',
  message: `The ${title} is paused: its host’s disk is full`,
  reason: `waits_for_room: its host’s disk is full, so the ${title} is paused; it runs again by itself as soon as there is room`,
  after: `The ${title} runs again: its host has room`,
})

/** A container that a quota holds to its bound: it goes on, but its writes outside its disks fail. */
const full = (title: string): Roomless => ({
  entry: 'disk_full',
  message: `Writes of the ${title} outside its disks fail: it has used up its disk_gib`,
  reason: `disk_full: the ${title} has used up its disk_gib, so its writes outside its disks fail; remove files or raise disk_gib`,
  after: `The ${title} has room again for what it writes outside its disks`,
})

/** Null for an instance that has room. */
export const roomlessAs = (
  title: string,
  { waits_for_room, layer_full }: { waits_for_room: boolean; layer_full: boolean },
): Roomless | null => (waits_for_room ? waiting(title) : layer_full ? full(title) : null)

/** Which of them the reason in a record tells; null: none. */
export const roomlessBy = (title: string, reason: string | null): Roomless | null =>
  [waiting(title), full(title)].find((one) => one.reason === reason) ?? null
