import { defaults, type ItemStep, type NodeSpec } from '../../lib/ai/node-kinds.ts'
import { stepNamed } from '../../lib/ai/steps.ts'
import { NotFound } from '../../lib/problem.ts'
import { type RunnerOf, versionOfRunner } from './run-nodes.ts'
import type { ReadVersion } from './versions.ts'

type Step = NodeSpec | ItemStep
type CallingKind = 'http' | 'tool' | 'llm'

/** A node, or what a map does with an item (`map-3`), if it is of this kind. Throws NotFound. */
export async function stepOfRun<K extends CallingKind>(
  runner: RunnerOf,
  name: string,
  ...kinds: K[]
): Promise<{ step: Extract<Step, { kind: K }>; version: ReadVersion }> {
  const version = await versionOfRunner(runner)
  const step = stepNamed(version.spec.nodes, name)?.step
  if (!step || !(kinds as string[]).includes(step.kind)) throw new NotFound('node')
  return { step: step as Extract<Step, { kind: K }>, version }
}

/** The API waits no longer for one answer, whatever the node's time. */
const mostSec = 3_600

/** How long one call of a step may take. A tool that a model calls has the usual time of a tool. */
export function secondsOf({ kind, timeout_sec }: Extract<Step, { kind: CallingKind }>): number {
  const ofStep = timeout_sec ?? defaults.timeout_sec[kind]
  return Math.min(mostSec, kind === 'llm' ? Math.min(ofStep, defaults.timeout_sec.tool) : ofStep)
}
