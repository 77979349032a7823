import { z } from 'zod'
import { Id } from '../fields.ts'

// The disks of an instance of any kind.

/** The path at which an instance mounts a disk. */
export const MountPath = z
  .string()
  .max(255)
  .regex(/^(\/[^/\0]+)+$/, 'must be an absolute path, without a / at its end')
  .refine((path) => !/\/\.{1,2}(\/|$)/.test(path), 'must not have . or .. in it')
  .refine((path) => !/^\/(proc|sys|dev)(\/|$)/.test(path), 'must not be below /proc, /sys or /dev')

/** An instance's disk in a request. */
export const DiskMount = z.strictObject({
  disk_id: Id,
  mount_path: MountPath,
  read_only: z.boolean().default(false),
})

/** An instance's disk in a view. */
export const MountView = z.strictObject({ disk_id: Id, mount_path: z.string(), read_only: z.boolean() })
