import { InferenceSession, Tensor } from 'onnxruntime-node'
import { type EmbedderFiles, modelFile } from './files.ts'

/** The vectors of texts one after another. */
export type Model = (texts: number[][]) => Promise<Float32Array>

/** Loads a model: some 200 MiB for the platform's own, of 23, since the runtime unpacks its weights. */
export async function openModel(files: EmbedderFiles): Promise<Model> {
  const session = await InferenceSession.create(modelFile(files.folder), {
    // The caller has a thread for each model.
    intraOpNumThreads: 1,
    interOpNumThreads: 1,
    // It would keep as much memory as the longest texts ever took, and saves no time.
    enableCpuMemArena: false,
    logSeverityLevel: 3,
  })
  const [outputName] = session.outputNames
  return async (texts) => {
    const width = Math.max(...texts.map(({ length }) => length))
    const output = (await session.run(inputsOf(session.inputNames, texts, width)))[outputName as string]
    const [, , dimensions] = output?.dims ?? []
    if (!output || dimensions !== files.dimensions)
      throw new Error(`the model gives vectors of ${dimensions} instead of ${files.dimensions}`)
    const { pooling } = files
    return pooled(output.data as Float32Array, texts, { width, dimensions, pooling })
  }
}

/** Shorter texts are filled up with zeros, which the mask hides. */
function inputsOf(names: readonly string[], texts: number[][], width: number): Record<string, Tensor> {
  const ids = new BigInt64Array(texts.length * width)
  const mask = new BigInt64Array(texts.length * width)
  for (const [row, tokens] of texts.entries()) {
    for (const [column, id] of tokens.entries()) ids[row * width + column] = BigInt(id)
    mask.fill(1n, row * width, row * width + tokens.length)
  }
  const known = { input_ids: ids, attention_mask: mask, token_type_ids: new BigInt64Array(ids.length) }
  return Object.fromEntries(
    names.map((name) => {
      const values = known[name as keyof typeof known]
      if (!values) throw new Error(`the model wants an input that is not known: ${name}`)
      return [name, new Tensor('int64', values, [texts.length, width])]
    }),
  )
}

interface Shape {
  width: number
  dimensions: number
  pooling: EmbedderFiles['pooling']
}

/** One vector of length 1 for each text. */
function pooled(
  output: Float32Array,
  texts: number[][],
  { width, dimensions, pooling }: Shape,
): Float32Array {
  const vectors = new Float32Array(texts.length * dimensions)
  for (const [row, { length }] of texts.entries()) {
    const vector = vectors.subarray(row * dimensions, (row + 1) * dimensions)
    const counted = pooling === 'first' ? 1 : length
    for (let token = 0; token < counted; token++) {
      const from = (row * width + token) * dimensions
      for (let at = 0; at < dimensions; at++) (vector[at] as number) += output[from + at] as number
    }
    normalise(vector)
  }
  return vectors
}

/** The sum of vectors has the direction of their mean. */
function normalise(vector: Float32Array): void {
  let squares = 0
  for (const value of vector) squares += value * value
  const length = Math.sqrt(squares)
  if (!Number.isFinite(length) || length === 0) throw new Error('the model gave a vector without direction')
  for (let at = 0; at < vector.length; at++) (vector[at] as number) /= length
}
