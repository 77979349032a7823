import { z } from 'zod'
import { imageName, imageTag, isShortImageName } from '../../lib/image-names.ts'
import type { Release } from '../../models/deploy/applications.ts'
import { Arguments, ConfigVars } from '../compute/instances.ts'
import { PortNumber } from '../network/load-balancer-fields.ts'
import { Tags } from '../fields.ts'

export const ImageTag = z.string().regex(imageTag, 'must be a tag of an image')
export const Envs = ConfigVars

/** The fields that make a release. */
export const releaseFields = {
  image: z
    .string()
    .max(255)
    .regex(imageName, 'must be the name of an image, without a tag')
    .refine(isShortImageName, 'is too long with its registry')
    .describe('The image without its tag'),
  tag: ImageTag,
  port: PortNumber.nullable().describe('The port on which the application listens; null: it serves nothing'),
  command: Arguments.describe('The command to run instead of the image’s own'),
  replicas: z.int().min(1).max(20),
  cpu_cores: z
    .number()
    .min(0.05)
    .max(64)
    .multipleOf(0.01)
    .describe('The most CPU cores that a replica may use'),
  memory_mib: z.int().min(8).max(65_536).describe('The memory of each replica, in MiB'),
  health_check: z
    .strictObject({
      path: z
        .string()
        .max(1024)
        .regex(/^\/[!-~]*$/, 'must be a path of a URL')
        .nullable()
        .default(null)
        .describe('The path at which a GET must answer with 2xx or 3xx; null: a connection is enough'),
      within_sec: z
        .int()
        .min(1)
        .max(900)
        .default(60)
        .describe('Seconds after which a release that does not serve is rolled back'),
    })
    .describe('How the platform checks that a new release serves'),
  stop_grace_sec: z.int().min(0).max(120).describe('Seconds that a replica may take to end'),
  tags: Tags,
}

export const creatableRelease = {
  ...releaseFields,
  tag: ImageTag.default('latest'),
  port: releaseFields.port.default(null),
  command: releaseFields.command.default([]),
  replicas: releaseFields.replicas.default(1),
  cpu_cores: releaseFields.cpu_cores.default(0.25),
  memory_mib: releaseFields.memory_mib.default(128),
  health_check: releaseFields.health_check.prefault({}),
  stop_grace_sec: releaseFields.stop_grace_sec.default(10),
  tags: Tags.default({}),
}

/** The fields of a release in views. */
export const releaseView = {
  image: z.string(),
  tag: z.string(),
  port: PortNumber.nullable(),
  command: z.array(z.string()),
  replicas: z.int(),
  cpu_cores: z.number(),
  memory_mib: z.int(),
  health_check: z.strictObject({ path: z.string().nullable(), within_sec: z.int() }),
  stop_grace_sec: z.int(),
}

export const toReleaseView = (release: Release): Release => ({
  image: release.image,
  tag: release.tag,
  port: release.port,
  command: release.command,
  replicas: release.replicas,
  cpu_cores: release.cpu_cores,
  memory_mib: release.memory_mib,
  health_check: { path: release.health_check.path, within_sec: release.health_check.within_sec },
  stop_grace_sec: release.stop_grace_sec,
})
