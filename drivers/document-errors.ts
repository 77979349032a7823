import type { DocumentStage } from './documents.ts'
import { EngineError } from './errors.ts'

export type DocumentFault =
  | 'empty'
  | 'wrong_type'
  | 'not_utf8'
  | 'encrypted'
  | 'broken'
  | 'too_large'
  | 'too_deep'

/** The document of a tenant cannot be read, or is more than is taken. The message says what is the matter with it. */
export class DocumentRefused extends EngineError {
  override readonly name = 'DocumentRefused'
  readonly code = 'document_refused'
  readonly permanent = true
  readonly stage: DocumentStage
  readonly fault: DocumentFault
  constructor(fault: DocumentFault, why: string, more: { stage?: DocumentStage; cause?: unknown } = {}) {
    super(why, { cause: more.cause })
    this.fault = fault
    this.stage = more.stage ?? 'extracting'
  }
}

export type ExtractionBound = 'cpu' | 'time' | 'memory'

/** Reading a document takes more time or memory than it may, and would do so again. */
export class ExtractionExceeded extends EngineError {
  override readonly name = 'ExtractionExceeded'
  readonly code = 'extraction_exceeded'
  readonly permanent = true
  readonly stage: DocumentStage
  readonly bound: ExtractionBound
  /** `most`: in ms, or MiB. */
  constructor(bound: ExtractionBound, most: number, stage: DocumentStage) {
    super(
      {
        cpu: `Reading the document takes more than ${most / 1000} s of processor time`,
        time: `Reading the document takes longer than ${most / 1000} s`,
        memory: `Reading the document takes more than ${most} MiB of memory`,
      }[bound],
    )
    this.bound = bound
    this.stage = stage
  }
}

/** The process that was reading a document was killed from outside, or could not begin: another attempt may succeed. */
export class ExtractionEnded extends EngineError {
  override readonly name = 'ExtractionEnded'
  readonly code = 'extraction_ended'
  readonly permanent = false
  readonly stage: DocumentStage
  constructor(stage: DocumentStage, cause?: unknown) {
    super('The program that reads documents ended before it was done', { cause })
    this.stage = stage
  }
}
