import { isFailure } from '../carry-out.ts'
import type { Work } from '../durable.ts'

/** Removes snapshots of a disk, after what is under way on it. Those that are gone are no failure. */
export async function removeSnapshots(
  { carryOut }: Pick<Work<unknown>, 'carryOut'>,
  of: { disk_id: string; names: string[] } | null,
): Promise<void> {
  for (const name of of?.names ?? []) {
    const disk = { kind: 'disk', id: of?.disk_id ?? '' }
    try {
      await carryOut(disk, 'remove_snapshot', { name }, { waitsForOthers: true })
    } catch (error) {
      if (!isFailure(error, 'not_found')) throw error
    }
  }
}
