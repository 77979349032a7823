import { z } from 'zod'
import { Id } from '../fields.ts'

// Disks in instances, of whichever kind.

/** Where a disk is mounted in an instance. */
const MountPath = z
  .string()
  .max(255)
  .regex(/^(\/[^/\0]+)+$/, 'must be an absolute path, without a / at its end')
  .refine((path) => !/\/\.{1,2}(\/|$)/.test(path), 'must not have . or .. in it')
  .refine((path) => !/^\/(proc|sys|dev)(\/|$)/.test(path), 'must not be below /proc, /sys or /dev')

/** A disk in an instance, as it is asked for. */
export const DiskMount = z.strictObject({
  disk_id: Id,
  mount_path: MountPath,
  read_only: z.boolean().default(false),
})

/** And as it is shown. */
export const MountView = z.strictObject({ disk_id: Id, mount_path: z.string(), read_only: z.boolean() })
