import type {
  DocumentChunk,
  DocumentStage,
  DocumentType,
  ExtractionBounds,
  TokenizerModule,
} from '../documents.ts'
import type { DocumentFault } from '../errors.ts'

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
  | { refused: { fault: DocumentFault; message: string; stage: DocumentStage } }
  | { exceeded: 'memory' }
  | { failed: string }

/** The signal by which the process ends when it has taken its memory: it may be too busy to report. */
export const overMemory = 'SIGUSR2'

export interface Watch {
  memoryMib: number
  parent: number
  overMemory: typeof overMemory
}
