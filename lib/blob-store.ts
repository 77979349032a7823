/** Stores bytes under keys that are never reused. Throws the client's errors; a retry may help. */
export interface BlobStore {
  put(key: string, bytes: Uint8Array): Promise<void>
  get(key: string): Promise<Buffer>
  /** Succeeds if there is no such key. */
  remove(key: string): Promise<void>
}

export interface S3Settings {
  KEELSON_S3_ENDPOINT?: string | undefined
  KEELSON_S3_REGION: string
  KEELSON_S3_BUCKET: string
  KEELSON_S3_ACCESS_KEY?: string | undefined
  KEELSON_S3_SECRET_KEY?: string | undefined
}

/** A bucket on any S3-compatible server. The bucket must exist. */
export async function makeS3Store(settings: S3Settings): Promise<BlobStore> {
  // Loaded on demand: it takes 20 MiB, and most platforms do not use it.
  const { S3Client, PutObjectCommand, GetObjectCommand, DeleteObjectCommand } = await import(
    '@aws-sdk/client-s3'
  )
  const { KEELSON_S3_ENDPOINT: endpoint, KEELSON_S3_BUCKET: Bucket } = settings
  const { KEELSON_S3_ACCESS_KEY: accessKeyId, KEELSON_S3_SECRET_KEY: secretAccessKey } = settings
  const client = new S3Client({
    region: settings.KEELSON_S3_REGION,
    // Not every S3 server has a host name per bucket.
    ...(endpoint ? { endpoint, forcePathStyle: true } : {}),
    // Without keys, the client uses the credentials of the cloud machine.
    ...(accessKeyId && secretAccessKey ? { credentials: { accessKeyId, secretAccessKey } } : {}),
  })
  return {
    async put(Key, Body) {
      await client.send(new PutObjectCommand({ Bucket, Key, Body }))
    },
    async get(Key) {
      const { Body } = await client.send(new GetObjectCommand({ Bucket, Key }))
      if (!Body) throw new Error('the object has no body')
      return Buffer.from(await Body.transformToByteArray())
    },
    async remove(Key) {
      await client.send(new DeleteObjectCommand({ Bucket, Key }))
    },
  }
}
