// What is read out of the documents that tenants upload for retrieval.

export const documentTypes = ['pdf', 'txt', 'md', 'json', 'csv'] as const
export type DocumentType = (typeof documentTypes)[number]

/** In which part of the work a document failed. */
export type DocumentStage = 'extracting' | 'chunking'

/** The first and last place of a text: pages and lines from 1 on, or JSON pointers (RFC 6901). */
export type Locator =
  | { page: number; last_page: number }
  | { line: number; last_line: number }
  | { pointer: string; last_pointer: string }

export interface DocumentChunk {
  /** SHA-256 of `text`, in hex. The same in each version of the document that has this text, wherever it is then. */
  hash: string
  /** What is embedded: the headings above the chunk, the header of its table, the end of the chunk before, its own text. */
  text: string
  /** UTF-16 units at the beginning of `text` that come from elsewhere in the document: headings and header. */
  prefix: number
  /** UTF-16 units of `text` behind those that repeat the end of the chunk before. The rest is the chunk's own. */
  overlap: number
  /** The outermost first. */
  headings: string[]
  /** Of its own text. */
  locator: Locator
  /** Of `text`. */
  tokens: number
}

export interface ExtractedDocument {
  /** In the order of the document. */
  chunks: DocumentChunk[]
  /** Sum over all chunks. */
  tokens: number
  /** Of a PDF; null for other types. */
  pages: number | null
}

export interface Tokenizer {
  /** As the embedder counts, without the tokens that it adds to each text. */
  countTokens(text: string): number
}

/** A tokenizer by its module, which the process that extracts imports. */
export interface TokenizerModule {
  /** URL of a file whose default export is `(settings) => Tokenizer | Promise<Tokenizer>`. */
  module: string
  settings: unknown
  /** Paths that it reads, beside the project and its packages. The process can read no other file. */
  reads: string[]
}

export interface ExtractionBounds {
  /** Of processor time: it does not depend on what else the machine does. */
  cpuMs: number
  /** By the clock, without the time for which the content is waited for. */
  withinMs: number
  /** Of the whole process that extracts, with some 60 MiB of its own. */
  memoryMib: number
  /** Of the document. */
  bytes: number
  chunks: number
  pages: number
  /** Of objects and lists in JSON. */
  depth: number
}

export interface ExtractionRequest {
  type: DocumentType
  content: Uint8Array | AsyncIterable<Uint8Array>
  tokenizer: TokenizerModule
  /** At most 220 unless set: longer texts are cut by embedders of 256 tokens, which need some for themselves. */
  tokensPerChunk?: number
  bounds?: Partial<ExtractionBounds>
  signal?: AbortSignal
  /** For whom: parties take turns. */
  party?: string
}

export interface DocumentExtractor {
  /**
   * Reads the document in a process of its own, once it is its turn. Throws DocumentRefused, ExtractionExceeded or
   * ExtractionEnded, the reason of an aborted signal, and what the content throws.
   */
  extract(request: ExtractionRequest): Promise<ExtractedDocument>
}
