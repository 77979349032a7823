import { z } from 'zod'
import { PublicKey } from './host-protocol.ts'

// Runners of AI workflows and the internal API.

/** What a runner carries out: a version of a workflow, which never changes. */
export const RunnerSpec = z.object({
  workflow_id: z.string(),
  version: z.int(),
  spec_sha256: z.string(),
  spec: z.record(z.string(), z.unknown()),
  /** What validation has learned of the spec (lib/ai/plan.ts). */
  plan: z.record(z.string(), z.unknown()),
})
export type RunnerSpec = z.infer<typeof RunnerSpec>

/** A runner's private key, as a JSON Web Key. */
export const RunnerKey = z.strictObject({ ...PublicKey.shape, d: z.string().regex(/^[\w-]{43}$/) })
export type RunnerKey = z.infer<typeof RunnerKey>
