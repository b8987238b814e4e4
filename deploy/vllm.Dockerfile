# vLLM with Steplane's plugin, which measures each of its steps: docker build -f deploy/vllm.Dockerfile -t steplane-vllm .
ARG VLLM=v0.32.0
FROM vllm/vllm-openai:${VLLM}
COPY . /tmp/steplane
# Nothing that the engine has is changed: the plugin brings no dependency that vLLM does not have.
RUN uv pip install --system --no-cache '/tmp/steplane[replica]' && rm -rf /tmp/steplane
EXPOSE 8000 9000
ENTRYPOINT ["steplane", "replica", "launch"]
CMD ["--pool", "interactive", "--engine", "vllm", "--", "--host", "0.0.0.0", "--port", "8000"]
