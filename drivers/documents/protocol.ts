import type {
  DocumentChunk,
  DocumentStage,
  DocumentType,
  ExtractionBounds,
  TokenizerModule,
} from '../documents.ts'
import type { DocumentFault } from '../document-errors.ts'

// What a worker and the process that reads a document say to each other. The document goes through the input.

export interface Order {
  type: DocumentType
  tokenizer: TokenizerModule
  tokensPerChunk: number
  bounds: ExtractionBounds
  /** The process that waits for the document. It may be gone when the order arrives. */
  parent: number
}

export type Report =
  | { stage: DocumentStage }
  | { chunks: DocumentChunk[] }
  | { done: { pages: number | null } }
  /** `cause`: for the operator. */
  | { refused: { fault: DocumentFault; message: string; stage: DocumentStage; cause: string | null } }
  | { exceeded: 'memory' }
  | { failed: string }

/** The signals by which the process ends when it has taken its memory or processor time: it may be too busy to report. */
export const over = { memory: 'SIGUSR2', cpu: 'SIGXCPU' } as const

export interface Watch {
  memoryMib: number
  cpuMs: number
  parent: number
  over: typeof over
}
