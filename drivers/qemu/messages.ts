import { z } from 'zod'

// Messages of a machine's agent. The tenant is root in the machine and may send anything in the agent's place, so each
// message is validated, and invalid ones are ignored.

// In the order in which a command goes through them.
const phases = ['waiting', 'running', 'restarting', 'ended'] as const

export const CommandStatus = z.object({
  phase: z.enum(phases),
  exit_code: z.int(),
  oom_killed: z.boolean(),
  restarts: z.int().nonnegative(),
  started_ns: z.number(),
})

/** The answer to `start` and `watch`. A command that has settled does not end at once any more. */
export const WatchedStatus = CommandStatus.extend({ settled: z.boolean().default(true) })

const Hello = z.object({ peer: z.string(), sent_ns: z.number(), now_ns: z.number(), status: CommandStatus })

// The agent's parts and a terminal's are at most 16 KiB.
const Part = z.base64().max(22 * 1024)

const AgentLine = z.object({
  seq: z.int().positive(),
  stream: z.union([z.literal(1), z.literal(2)]),
  /** Base64. */
  text: Part,
  partial: z.boolean().optional(),
})

const session = z.string()

export const AgentMessage = z.discriminatedUnion('verb', [
  z.object({ verb: z.literal('hello'), body: Hello }),
  z.object({
    verb: z.literal('answer'),
    id: z.int(),
    fault: z.object({ code: z.string(), message: z.string().max(8192) }).optional(),
    body: z.unknown().optional(),
  }),
  z.object({ verb: z.literal('status'), body: CommandStatus }),
  z.object({ verb: z.literal('log'), body: z.tuple([AgentLine], AgentLine) }),
  z.object({ verb: z.literal('out'), session, body: Part }),
  z.object({ verb: z.literal('err'), session, body: Part }),
  z.object({ verb: z.literal('ack'), session, body: z.int().nonnegative() }),
  z.object({ verb: z.literal('exit'), session, body: z.int() }),
])

/** More than the agent's longest message. */
export const longestMessageBytes = 1024 * 1024

/** Memory use of the machine's processes: the answer to `usage`. */
export const Usage = z.object({ memory_bytes: z.int().nonnegative() })

export type WatchedStatus = z.infer<typeof WatchedStatus>
export type CommandStatus = z.infer<typeof CommandStatus>
export type AgentLine = z.infer<typeof AgentLine>
export type Hello = z.infer<typeof Hello>
export type AgentMessage = z.infer<typeof AgentMessage>

/** Whether the command's status `one` was true before `other`. */
export const isBefore = (one: CommandStatus, other: CommandStatus): boolean =>
  one.restarts === other.restarts
    ? phases.indexOf(one.phase) < phases.indexOf(other.phase)
    : one.restarts < other.restarts
