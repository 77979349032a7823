// A machine that stands still: a write to one of its disks finds no room on the disk of its host.

/** The reason in the record of a running machine. */
export const roomReason = (title: string): string =>
  `waits_for_room: the disk of its host is full, so the ${title} stands still; it goes on by itself as soon as there is room`
