/** What a collection pins of its embedder: vectors of another one cannot be compared with its own. */
export interface EmbedderFacts {
  /** `<name>@<the first 16 digits of the hash>`: by this name nothing but this embedder answers. */
  id: string
  name: string
  /** Of all that decides about its vectors (SHA-256, in hex). */
  hash: string
  dimensions: number
  /** The longest text, in tokens as `countTokens` counts them. */
  most_tokens: number
}

/** Counts as an embedder does, and embeds nothing: for whatever cuts texts to its size. */
export interface TokenCounter {
  /** With the tokens that the model itself puts around a text, and at least one for 100 characters. */
  countTokens(text: string): number
}

export interface Embedded {
  /** Of length 1, in the order of the texts. */
  vectors: Float32Array[]
  /** Of all texts together. */
  tokens: number
}

export interface Embedding {
  signal?: AbortSignal
  /** For whom: parties take turns, and their calls of many texts go one by one. */
  party?: string
  /** Learns what each piece took, also if the call ends before its end. */
  onTokens?: (tokens: number) => void
}

export interface Embedder {
  readonly facts: EmbedderFacts
  /**
   * Rejects with TextTooLong, EmbedderUnavailable or the signal's reason. The same text has the same vector but for
   * rounding (1e-6), whatever it is embedded with.
   */
  embed(texts: string[], options?: Embedding): Promise<Embedded>
  /** Ends its threads. What is under way is rejected. */
  close(): Promise<void>
}
