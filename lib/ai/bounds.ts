// What a spec may be at most. A tenant writes specs, and the API reads them in its own process: each bound keeps the
// time and memory of that small.

export const bounds = {
  /** Bytes of the spec's canonical JSON. */
  specBytes: 512 * 1024,
  /** Objects and arrays within each other. */
  depth: 32,
  nodes: 200,
  needs: 50,
  /** Characters of one expression, and of all expressions of a spec together. */
  expressionChars: 4_096,
  allExpressionChars: 64 * 1024,
  /** Characters of one text with expressions in it. */
  templateChars: 64 * 1024,
  /** Parts of one type: objects, lists, fields. A larger one is `any`. */
  types: 500,
  /** Parts of all types that the expressions of one node refer to. */
  typesOfNode: 2_000,
  /** Bytes of the types that are stored with a version. */
  planBytes: 1024 * 1024,
  regexChars: 1_000,
  mapItems: 1_000,
  mapAtOnce: 16,
  /** Workflows within workflows. */
  workflowDepth: 5,
  /** Connectors, tools, collections and workflows that a spec names: each is looked up. */
  references: 200,
  /** Canonical JSON of one eval case, and of all cases of a workflow: each change of one reads all. */
  caseBytes: 256 * 1024,
  caseSetBytes: 4 * 1024 * 1024,
  /** Runs of an eval case. */
  repeats: 20,
  /** 30 days. */
  wallSec: 30 * 86_400,
} as const

/** Tokens that a call of a model reserves for its answer if the model has no `max_tokens`. */
export const unboundedAnswer = {
  /** As much as most models write at most. */
  usual: 32_768,
  /** Its API needs a bound, so nodes send this one. */
  anthropic: 4_096,
} as const

/** Bounds of evaluating the expressions of one node. */
export const evaluationBounds = {
  /** Processor time of the expressions. */
  cpuMs: 100,
  /** The same with reading the values and writing the result. */
  wholeCpuMs: 2_000,
  /** Until the process is ended even if the machine gave it no processor time. */
  wallMs: 30_000,
  /** JSON of all values given together. */
  inputBytes: 16 * 1024 * 1024,
  /** JSON of the result: a node's output. */
  outputBytes: 8 * 1024 * 1024,
  /** Values within the result: objects, lists, texts, numbers. */
  outputValues: 1_000_000,
  /** Of the process. It must hold the values given, their copies, and the result. */
  heapMib: 192,
} as const

/** Bounds of the values of a run. */
export const runBounds = {
  /** JSON of a run's input. */
  inputBytes: 1024 * 1024,
  /** JSON of all outputs of a run together. */
  allBytes: 64 * 1024 * 1024,
  /** Objects and arrays within each other. */
  depth: 64,
  /** Open runs of one workflow. */
  open: 1_000,
} as const

/** Bounds of running the eval cases of a workflow. */
export const evalBounds = {
  /** All repeats of all cases together: their record holds what each of them came to. */
  runs: 1_000,
  /** Runs under way at once. */
  atOnce: 8,
  /** Of a workflow, the newest ones. */
  kept: 50,
  /** JSON of an output that a judge reads. */
  judgedBytes: 512 * 1024,
  /** What is kept of a judge's reasons, and of a fault. */
  reasonsChars: 1_000,
} as const

/** Whether objects and arrays are within each other deeper than that. Takes bounded time on any value. */
export function isDeeperThan(value: unknown, most: number): boolean {
  if (typeof value !== 'object' || value === null) return false
  return most === 0 || Object.values(value).some((inner) => isDeeperThan(inner, most - 1))
}
